"""From recorded results to the items of a bank: what was asked, in the words in which it was."""
