package xdsclient

import (
	"errors"
	"fmt"
	"strings"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// listing is one assignment of a response, read.
type listing struct {
	resource.Listing

	name string
	err  error
}

// undone is an entry with what it was.
type undone struct {
	entry  *entry
	before entry
}

// take puts a response in force: what is right in it, even where something
// else is wrong. The error names all that is refused; what is not in the
// response stays as it is.
func (c *Client) take(cfg *Config, resp *discoveryv3.DiscoveryResponse) error {
	listings, problems := readAll(cfg, resp)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []isobar.Service
	var undo []undone
	for i := range listings {
		l := &listings[i]
		e := c.table.find(l.name)
		if e == nil {
			continue // not asked for, or not any more
		}
		if l.err != nil {
			problems = append(problems, c.refuse(e, l.err))
			continue
		}
		before := *e
		if e.take(l.Listing, now) {
			changed, undo = append(changed, e.service()), append(undo, undone{e, before})
		}
		c.logOddities(e, &before, l, now)
	}
	problems = append(problems, c.putAll(changed, undo)...)
	c.counted(problems, now)
	c.show()
	return errors.Join(problems...)
}

// putAll puts services in force, those that are refused left out: halves of what
// is refused together are tried apart. c.mu is held.
func (c *Client) putAll(services []isobar.Service, undo []undone) (problems []error) {
	err := c.put(services)
	switch half := len(services) / 2; {
	case err == nil:
		return nil
	case half > 0:
		return append(c.putAll(services[:half], undo[:half]), c.putAll(services[half:], undo[half:])...)
	}
	*undo[0].entry = undo[0].before
	return []error{c.refuse(undo[0].entry, err)}
}

// readAll decodes and checks the resources of a response.
func readAll(cfg *Config, resp *discoveryv3.DiscoveryResponse) (out []listing, problems []error) {
	seen := map[string]bool{}
	for i, listed := range resp.GetResources() {
		l, err := read(cfg, listed)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("resources[%d]: %w", i, err))
		case seen[l.name]:
			problems = append(problems, fmt.Errorf("resources[%d]: %.200q occurs twice in the response", i, l.name))
		default:
			seen[l.name] = true
			out = append(out, l)
		}
	}
	return out, problems
}

// read returns an error where not even the name can be told.
func read(cfg *Config, listed *anypb.Any) (listing, error) {
	if listed.GetTypeUrl() != resource.EndpointsURL {
		return listing{}, rpc.BadMessage("type_url", keep.Short(listed.GetTypeUrl())+" was not asked for")
	}
	m := &endpointv3.ClusterLoadAssignment{}
	if err := rpc.Decode(listed.GetValue(), m); err != nil {
		return listing{}, err
	}
	if m.GetClusterName() == "" {
		return listing{}, rpc.BadMessage("cluster_name", "empty")
	}
	l := listing{name: m.GetClusterName()}
	l.Listing, l.err = resource.ReadListing(m, cfg.DefaultLocality)
	return l, nil
}

// refuse notes why an assignment is not taken. c.mu is held.
func (c *Client) refuse(e *entry, err error) error {
	e.answered = true
	if text := keep.Short(err.Error()); text != e.refused {
		e.refused = text
		c.warn("an assignment of the other control plane is refused; the previous one stays",
			"service", e.Settings.Name, "eds_name", e.EDSName, "error", text)
	}
	return fmt.Errorf("%s: %w", e.EDSName, err)
}

// logOddities logs accepted resources that have unexpected content. c.mu is held.
func (c *Client) logOddities(e, before *entry, l *listing, now time.Time) {
	if l.LeftOut != before.leftOut && l.LeftOut > 0 {
		c.warn("endpoints of the other control plane are left out",
			"service", e.Settings.Name, "endpoints", l.LeftOut, "first", l.Reason)
	}
	if e.emptySince.Equal(now) {
		c.warn("the other control plane no longer lists endpoints; the previous ones stay for now",
			"service", e.Settings.Name, "eds_name", e.EDSName, "endpoints", e.endpoints())
	}
}

// put hands services to the registry and marks that there is something to
// save. c.mu is held.
func (c *Client) put(services []isobar.Service) error {
	if len(services) == 0 {
		return nil
	}
	if err := c.opts.Registry.PutListed(services); err != nil {
		return err
	}
	c.saver.Changed()
	return nil
}

// counted keeps the figures of a response. c.mu is held.
func (c *Client) counted(problems []error, now time.Time) {
	if len(problems) == 0 {
		c.link.acks++
		c.link.failure = ""
		c.link.lastUpdate = now
		c.metrics.acks.Inc()
		c.metrics.updated.Set(float64(now.UnixMilli()) / 1000)
		return
	}
	c.link.nacks++
	c.link.lastNACK, c.link.lastNACKAt = keep.Short(errors.Join(problems...).Error()), now
	c.metrics.nacks.Inc()
}

// release lets go of services that have been called empty for long enough, and
// tells when to come back.
func (c *Client) release(cfg *Config) time.Duration {
	const never = time.Hour
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	emptied := c.table.release(cfg.EmptyHold, now)
	changed := make([]isobar.Service, 0, len(emptied))
	for _, e := range emptied {
		changed = append(changed, e.service())
		c.warn("a service has no endpoints any more, as the other control plane has said for long enough",
			"service", e.Settings.Name, "eds_name", e.EDSName, "hold", cfg.EmptyHold)
	}
	if err := c.put(changed); err != nil {
		c.opts.Log.Error("an emptied service keeps its endpoints", "error", err)
	}
	if len(emptied) > 0 {
		c.show()
	}
	if at, ok := c.table.nextRelease(cfg.EmptyHold); ok {
		return max(0, at.Sub(now))
	}
	return never
}

// wanted lists the names to ask for.
func (c *Client) wanted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.names()
}

// opened notes that a stream stands.
func (c *Client) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.connected, c.link.since = true, time.Now()
	c.metrics.connected.Set(1)
	c.metrics.streams.Inc()
}

// logUnanswered logs the services that the server does not answer for.
func (c *Client) logUnanswered(cfg *Config) {
	const most = 10
	c.mu.Lock()
	defer c.mu.Unlock()
	var silent []string
	for _, e := range c.table.entries {
		if !e.answered {
			silent = append(silent, e.EDSName)
		}
	}
	if len(silent) == 0 {
		return
	}
	count := len(silent)
	c.warn("the other control plane does not answer for some names; it may not know them, or may answer only clients that subscribe to all names",
		"server", cfg.Server, "count", count, "eds_names", strings.Join(silent[:min(count, most)], ", "))
}
