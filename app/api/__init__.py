"""HTTP layer: JSON over the services. `app.api.routing.router` makes a router of `/v1`."""
