"""Sessions: adaptive tests of one examinee."""
