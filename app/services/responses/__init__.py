"""Response sets: recorded answers, in and out."""
