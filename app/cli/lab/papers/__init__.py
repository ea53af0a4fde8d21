"""The protocols of published studies, run on data at hand; one module a study."""
