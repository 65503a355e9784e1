// Package dns takes endpoints from DNS: it resolves the names that are
// configured for the localities of services, again whenever an answer has run
// out, and hands the services over to the registry.
//
// What was resolved last stays in force while no server answers, over restarts
// too; a name that loses its records keeps its endpoints for a while.
package dns

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// Family says which addresses of a host are endpoints.
type Family uint8

// The families.
const (
	Auto Family = iota // IPv4; IPv6 of hosts that have no IPv4 address
	IPv4
	IPv6
)

// Lookup is a name to resolve. It is comparable: two that are equal get the same
// answer.
type Lookup struct {
	Name   string // without the dot at its end
	SRV    bool   // Name has SRV records, which say where the hosts are; else it is a host
	Port   uint16 // of a host
	Family Family
}

// Config says what to resolve where. It is not changed after it was handed over.
type Config struct {
	Servers   []string      // IP:port; empty = those of the system's resolv.conf
	MinTTL    time.Duration // an answer counts at least for so long
	Timeout   time.Duration // of one question to one server
	EmptyHold time.Duration // for how long a name that loses its records keeps its endpoints; 0 = not at all
	Services  []Service     // their names are unique
}

// Service is what to resolve for one service, and what is configured beside it.
type Service struct {
	Settings isobar.Service // its localities have no endpoints
	// Lookups has those of each locality of Settings, in the same order.
	Lookups [][]Lookup
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
	Registry   Registry
	Store      keep.Store
	ResolvConf string                // the system's file; empty = /etc/resolv.conf
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = no metrics
	// Dial opens the connection to a server; nil = the system's. Over what is no
	// packet connection, messages have their length before them, as over TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) complete() (Options, error) {
	if o.Registry == nil || o.Store == nil {
		return o, errors.New("dns: Registry and Store must be given")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.ResolvConf = cmp.Or(o.ResolvConf, "/etc/resolv.conf")
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return o, nil
}
