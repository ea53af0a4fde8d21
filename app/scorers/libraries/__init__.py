"""What takes seconds to import: helper processes alone do so."""
