"""How well what was calibrated fits, and how well tests on it do."""
