package loadgen

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Bounds of what is asked before the clients begin.
const (
	learnTimeout = 30 * time.Second
	learnFrom    = 100 // services that are asked for their localities
)

// learn asks the server for what the options leave out: the services, and
// where they have endpoints.
func (r *run) learn(ctx context.Context) error {
	within := min(learnTimeout, r.opts.Patience)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := r.ask(ctx)
	switch {
	case err == nil:
	// The server ends the stream at the deadline too, and its word may be here
	// before ctx says that it is done.
	case status.Code(err) == codes.DeadlineExceeded && len(r.opts.Services) > 0:
		return fmt.Errorf("%s: no assignment of %s within %s: does the server have these services?",
			r.opts.Target, brief(r.opts.Services), within)
	case r.opts.Hint != nil && r.opts.Hint(err) != "":
		return fmt.Errorf("%s: %w: %s", r.opts.Target, err, r.opts.Hint(err))
	case status.Code(err) == codes.Unavailable:
		return fmt.Errorf("%s: %w: is isobar running there, and is this its address for clients?", r.opts.Target, err)
	default:
		return fmt.Errorf("%s: %w", r.opts.Target, err)
	}
	r.opts.Subscribe = min(r.opts.Subscribe, len(r.opts.Services))
	return nil
}

// brief names the first of some services.
func brief(services []string) string {
	const most = 3
	text := strings.Join(services[:min(most, len(services))], ", ")
	if more := len(services) - most; more > 0 {
		text += fmt.Sprintf(" or %d more", more)
	}
	return text
}

func (r *run) ask(ctx context.Context) error {
	r.opts.Services = slices.Compact(slices.Sorted(slices.Values(r.opts.Services)))
	if len(r.opts.Services) > 0 && len(r.opts.Localities) > 0 {
		return nil
	}
	conn, err := r.dial(0)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	s, err := conn.NewStream(ctx, bidirectional, adsMethod)
	if err != nil {
		return err
	}
	var where isobar.Locality
	if len(r.opts.Localities) > 0 {
		where = r.opts.Localities[0]
	}
	node, err := newNode("isobar-bench", where, SharedADS)
	if err != nil {
		return err
	}
	if len(r.opts.Services) == 0 {
		if r.opts.Services, err = r.askServices(s, node); err != nil {
			return err
		}
		node = nil // a stream is told once
	}
	if len(r.opts.Localities) == 0 {
		r.opts.Localities, err = r.askLocalities(s, node)
	}
	return err
}

// askServices lists all clusters.
func (r *run) askServices(s grpc.ClientStream, node []byte) ([]string, error) {
	m, err := r.request(s, first(node, requestFor(nil, resource.ClusterURL)))
	if err != nil {
		return nil, err
	}
	if len(m.clusters) == 0 {
		return nil, errors.New("the server has no services yet")
	}
	slices.Sort(m.clusters)
	return slices.Compact(m.clusters), nil
}

// askLocalities lists where the first services have endpoints.
func (r *run) askLocalities(s grpc.ClientStream, node []byte) ([]isobar.Locality, error) {
	sub := requestFor(r.opts.Services[:min(learnFrom, len(r.opts.Services))], resource.EndpointsURL)
	if node != nil {
		sub = first(node, sub)
	}
	m, err := r.request(s, sub)
	if err != nil {
		return nil, err
	}
	found := map[isobar.Locality]bool{}
	for _, a := range m.assignments {
		for _, l := range a.where {
			found[l] = true
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no service has endpoints yet: say which localities the clients are in")
	}
	return slices.SortedFunc(maps.Keys(found), isobar.Locality.Compare), nil
}

// request sends a request and returns the response to it.
func (r *run) request(s grpc.ClientStream, encoded []byte) (*response, error) {
	if err := send(s, encoded); err != nil {
		return nil, err
	}
	m := &response{catalog: r.catalog}
	return m, s.RecvMsg(m)
}

// makeClients makes the clients. Clients of a service are in all localities:
// the services go round, and each time they do the localities move on by one.
func (r *run) makeClients() error {
	all, each, where := len(r.opts.Services), r.opts.Subscribe, len(r.opts.Localities)
	r.clients = make([]*client, r.opts.Clients)
	for i := range r.clients {
		turn := i * each / all
		place := i - (turn*all+each-1)/each // in its turn
		node, err := newNode(fmt.Sprintf("isobar-bench-%d", i), r.opts.Localities[(place+turn)%where], r.opts.Streams)
		if err != nil {
			return err
		}
		c := &client{id: i, run: r, node: node, assigned: make([]*assignment, each), carry: make([]float64, each)}
		for k := range each {
			c.names = append(c.names, r.opts.Services[(i*each+k)%all])
		}
		c.subscriptions = subscriptions(c.names, r.opts.Streams)
		r.clients[i] = c
	}
	return nil
}
