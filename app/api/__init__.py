"""HTTP layer: JSON over the services. `app.api.routing.make_router` makes a router of `/v1`."""
