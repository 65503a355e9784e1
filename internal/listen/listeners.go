package listen

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/isobar-xds/isobar/internal/config"
)

// Listeners are where the server listens. Servers close them.
type Listeners struct {
	XDS     net.Listener // required
	XDS2017 net.Listener // for clients of 2017 alone; nil = none
	REST    net.Listener // for clients that poll over HTTP; nil = none
	Admin   net.Listener // nil = no admin interface
	// Replicas is for the other replicas of the group; required where the
	// configuration names one.
	Replicas net.Listener
}

// All opens the listeners that a configuration names.
func All(ctx context.Context, cfg *config.Fixed) (Listeners, error) {
	var lc net.ListenConfig
	var out Listeners
	for _, l := range []struct {
		field, address string
		into           *net.Listener
	}{
		{"xds.listen", cfg.XDS.Listen, &out.XDS},
		{"xds.listen_2017", cfg.XDS.Listen2017, &out.XDS2017},
		{"xds.listen_rest", cfg.XDS.ListenREST, &out.REST},
		{"admin.listen", cfg.Admin.Listen, &out.Admin},
		{"replicas.listen", cfg.Replicas.Address(), &out.Replicas},
	} {
		if l.address == "" {
			continue
		}
		opened, err := lc.Listen(ctx, "tcp", l.address)
		if err != nil {
			return Listeners{}, errors.Join(fmt.Errorf("%s: %w", l.field, err), out.Close())
		}
		*l.into = opened
	}
	return out, nil
}

// grpc lists the listeners of gRPC clients.
func (l Listeners) grpc() []net.Listener {
	if l.XDS2017 == nil {
		return []net.Listener{l.XDS}
	}
	return []net.Listener{l.XDS, l.XDS2017}
}

// Close closes the listeners, for callers that could not start a server.
func (l Listeners) Close() error {
	var err error
	for _, x := range []net.Listener{l.XDS, l.XDS2017, l.REST, l.Admin, l.Replicas} {
		if x != nil {
			err = errors.Join(err, x.Close())
		}
	}
	return err
}
