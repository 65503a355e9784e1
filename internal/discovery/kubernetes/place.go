package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isobar-xds/isobar"
)

// nodePatience bounds how long [Provider.Place] waits for a Node.
const nodePatience = 5 * time.Second

// Place returns the locality of the Node on which a client runs, which connects from an
// address. It waits a little for a Node that is not known yet. An address that an
// endpoint on another Node has contradicts the client: then, too, there is an error.
func (p *Provider) Place(ctx context.Context, node string, from netip.Addr) (isobar.Locality, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		p.mu.Lock()
		where, wait, err := p.place(node, from)
		changed := p.nodes
		p.mu.Unlock()
		if !wait {
			return where, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return where, err
		}
	}
}

// place is Place without the wait. p.mu is held.
func (p *Provider) place(node string, from netip.Addr) (where isobar.Locality, wait bool, err error) {
	s := p.session
	switch {
	case p.cfg == nil:
		return where, false, errors.New("no Kubernetes cluster is configured")
	case s == nil || s.nodes == nil || !s.nodes.synced && !s.nodes.without():
		where, known := p.places[node]
		if !known {
			return where, true, errors.New("the Nodes of the cluster are not listed yet")
		}
		return where, false, nil
	case s.nodes.without():
		return where, false, errors.New("the service account may not list and watch nodes, by a ClusterRole")
	}
	if at := s.table.NodeAt(from.Unmap()); at != "" && at != node {
		return where, false, fmt.Errorf("%s is the address of a Pod on Node %s", from, at)
	}
	where, reason := s.table.PlaceNode(node)
	if reason != "" {
		return where, true, errors.New(reason)
	}
	return where, false, nil
}

// placesOfNodes gives where Nodes are, to be saved. p.mu is held.
func (p *Provider) placesOfNodes() map[string]isobar.Locality {
	if s := p.session; s != nil && s.nodes != nil && s.nodes.synced {
		return s.table.PlacesOfNodes()
	}
	return p.places
}

// nodesChanged wakes those that wait for a Node. p.mu is held.
func (p *Provider) nodesChanged() {
	close(p.nodes)
	p.nodes = make(chan struct{})
}
