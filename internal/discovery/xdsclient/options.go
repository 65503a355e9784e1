// Package xdsclient takes endpoints from another control plane: it subscribes to
// that server's endpoint discovery as a client would, and hands the services
// that are configured, with the endpoints that are listed, to the registry.
//
// What it was told last stays in force while the server can't be reached, over
// restarts too; what breaks a rule is refused with a reason, and what stood
// before stays.
package xdsclient

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// Config says which server to ask for what. It is not changed after it was
// handed over.
type Config struct {
	Server string // HOST:PORT
	TLS    *TLS   // nil = plaintext
	Node   Node
	// ADS asks over the aggregated stream, else the endpoint discovery service
	// is asked.
	ADS bool
	// DefaultLocality is where endpoints without a locality are; zero = an
	// assignment with such endpoints is refused.
	DefaultLocality isobar.Locality
	// EmptyHold is how long a service that becomes empty keeps its endpoints;
	// 0 = not at all.
	EmptyHold time.Duration
	Services  []Service // names and EDS names are unique
}

// TLS names the files for a connection. They are read whenever one is made.
type TLS struct {
	CA         string // certificates to trust; empty = the system's
	Cert, Key  string // the client's certificate; empty = none
	ServerName string // in the server's certificate; empty = the host of the address
}

// Node is what Isobar calls itself towards the server.
type Node struct {
	ID, Cluster string
	Locality    isobar.Locality
}

// Service is what to ask for, and what is configured beside it.
type Service struct {
	EDSName  string         // what the other control plane calls it
	Settings isobar.Service // its localities have no endpoints
	Ceiling  float64        // of localities without settings; 0 = isobar.DefaultCeiling
}

// Registry is where the services go.
type Registry interface {
	// PutListed replaces some services, or adds them.
	PutListed(services []isobar.Service) error
	// Get gives the object in force under a name, or isobar.ErrNotFound.
	Get(name string) (isobar.Object, error)
}

// Options of [Open]. Registry and Store are required.
type Options struct {
	Registry Registry
	Store    keep.Store
	// Dial opens the connection; nil = the system's.
	Dial       func(ctx context.Context, address string) (net.Conn, error)
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = no metrics
}

func (o Options) complete() (Options, error) {
	if o.Registry == nil || o.Store == nil {
		return o, errors.New("xdsclient: Registry and Store must be given")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
