"""What ended and coming sessions tell: who is better, may it go out, what will it take."""
