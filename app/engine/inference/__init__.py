"""What results say: differences, decisions, fit of persons."""
