"""What commands read from the terminal and print on it."""
