"""The subcommands of `sextant`: one module for each noun or verb."""
