package fleet

import (
	"context"

	"github.com/isobar-xds/isobar"
)

// Management is a running management server.
type Management interface {
	XDSAddress() string   // for the clients' bootstrap
	AdminAddress() string // of the HTTP API; empty when it has none
	// Health tells what health checkers agree on of the endpoints, by address.
	Health(ctx context.Context) (map[string]isobar.HealthStatus, error)
	// Stop ends the server and returns when nothing of it runs any more.
	Stop() error
}

// StartManagement starts a management server for a topology, with load
// reports and decisions as often as the scenario says. The context bounds the
// start only.
type StartManagement func(ctx context.Context, topology *isobar.Topology, s *Scenario) (Management, error)
