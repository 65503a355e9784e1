package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/isobar-xds/isobar/internal/config"
)

// Listen opens the listeners that a configuration names.
func Listen(ctx context.Context, cfg *config.Config) (Listeners, error) {
	var lc net.ListenConfig
	x, err := lc.Listen(ctx, "tcp", cfg.XDS.Listen)
	if err != nil {
		return Listeners{}, fmt.Errorf("xds.listen: %w", err)
	}
	a, err := lc.Listen(ctx, "tcp", cfg.Admin.Listen)
	if err != nil {
		return Listeners{}, errors.Join(fmt.Errorf("admin.listen: %w", err), x.Close())
	}
	return Listeners{XDS: x, Admin: a}, nil
}

// Close closes the listeners, for callers that could not start a server.
func (l Listeners) Close() error {
	err := l.XDS.Close()
	if l.Admin != nil {
		err = errors.Join(err, l.Admin.Close())
	}
	return err
}
