package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

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
		f.log.Error("rejected certificate files; the previous certificates stay in force", "error", err)
	} else {
		f.last.creds = credentials.NewTLS(config)
	}
	return f.last.creds
}

// dialCredentials decides how to connect to an address that a flag gives: TLS
// where certificates are given, and plaintext only on this machine unless that
// is written out.
func dialCredentials(flag, address string, files identity.DialFiles, plaintext bool, log *slog.Logger) (credentials.TransportCredentials, error) {
	host, _, err := hostPort(flag, address)
	if err != nil {
		return nil, err
	}
	if files.CA != "" {
		return followedCredentials(files, log)
	}
	switch {
	case files.Cert != "" || files.Key != "":
		return nil, usageError{errors.New("--cert, --key: give --ca, too, so that the connection uses TLS")}
	case !plaintext && !onLoopback(host):
		return nil, usagef("%s %q is not on this machine: give --ca FILE for TLS, or --insecure to go without", flag, address)
	}
	return insecure.NewCredentials(), nil
}

// hostPort splits the address that a flag gives.
func hostPort(flag, address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", 0, usagef("%s %q: want HOST:PORT, for example 127.0.0.1:18000", flag, address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, usagef("%s %q: the port must be a number from 1 to 65535", flag, address)
	}
	return host, uint16(number), nil
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
