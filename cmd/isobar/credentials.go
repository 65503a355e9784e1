package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/isobar-xds/isobar/internal/identity"
)

// followed are TLS credentials that read their files again for each connection:
// short-lived certificates are renewed under a process that runs for months.
type followed struct {
	credentials.TransportCredentials // as read at the start

	files identity.DialFiles
	log   *slog.Logger
	last  *lastGood
}

// lastGood is shared by all copies of the credentials.
type lastGood struct {
	mu    sync.Mutex
	creds credentials.TransportCredentials
}

func followedCredentials(files identity.DialFiles, log *slog.Logger) (credentials.TransportCredentials, error) {
	config, err := files.Config()
	if err != nil {
		return nil, fmt.Errorf("--ca, --cert, --key: %w", err)
	}
	creds := credentials.NewTLS(config)
	return followed{TransportCredentials: creds, files: files, log: log, last: &lastGood{creds: creds}}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (f followed) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.newest().ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (f followed) Clone() credentials.TransportCredentials {
	f.TransportCredentials = f.TransportCredentials.Clone()
	return f
}

// newest are the credentials of what the files hold now or, if that is bad,
// held before.
func (f followed) newest() credentials.TransportCredentials {
	config, err := f.files.Config()
	f.last.mu.Lock()
	defer f.last.mu.Unlock()
	if err != nil {
		f.log.Error("certificate files refused; what they held before is used", "error", err)
	} else {
		f.last.creds = credentials.NewTLS(config)
	}
	return f.last.creds
}
