"""What commands read from the terminal and show there."""
