// Package measure runs the scenarios: several servers with the same clients,
// side by side, measured in turn.
package measure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/process"
)

// Push is a scenario in which one endpoint of one cluster changes, and all
// streams get the cluster.
type Push struct {
	Streams       int
	PerConnection int
	Subscriptions int // of each stream
	Changes       int // in a round, if it is not over before
	Servers       []string
}

// Name is the scenario's name in results.
func (p *Push) Name() string {
	return fmt.Sprintf("Push/streams=%d/subs=%d/perconn=%d", p.Streams, p.Subscriptions, p.PerConnection)
}

// roundTime ends the round of a slow server early: what takes a fast one enough
// changes for a 99th percentile would take LinearCache minutes.
const roundTime = 6 * time.Second

// mixed ends the name of a server whose clients are a third each of v3, of v2 and
// of 2017.
const mixed = "-mixed"

// crowd is all clients of one server that it asks for what it uses.
type crowd struct {
	*audience

	kind    string // the server's, and mixed
	process *process.Process
	alone   process.Memory // before a client connects
}

// Run measures all servers, in turn, for a number of rounds. Servers and their
// clients stay connected all the while.
func (p *Push) Run(ctx context.Context, rounds int, report func(Result)) error {
	var crowds []*crowd
	defer func() {
		for _, c := range crowds {
			c.close()
		}
	}()
	for _, kind := range p.Servers {
		c, err := p.start(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		crowds = append(crowds, c)
		if err := p.idle(c, "connected", report); err != nil {
			return err
		}
	}
	for round := range rounds + 1 {
		for _, c := range crowds {
			results, err := p.round(ctx, c, round)
			if err != nil {
				return fmt.Errorf("%s: %w", c.kind, err)
			}
			if round == 0 {
				continue // everything warms up
			}
			for _, r := range results {
				report(r)
			}
		}
	}
	for _, c := range crowds {
		if err := p.idle(c, "pushed", report); err != nil {
			return err
		}
	}
	return nil
}

// idle reports what an idle stream takes.
func (p *Push) idle(c *crowd, after string, report func(Result)) error {
	now, err := c.rest()
	if err != nil {
		return fmt.Errorf("%s: %w", c.kind, err)
	}
	report(Result{
		Name:   fmt.Sprintf("Idle/streams=%d/subs=%d/perconn=%d/after=%s/server=%s", p.Streams, p.Subscriptions, p.PerConnection, after, c.kind),
		N:      int64(p.Streams),
		Values: perStream(now, c.alone, p.Streams),
	})
	return nil
}

// perStream is what each of a number of streams takes beyond what the server
// took alone.
func perStream(now, alone process.Memory, streams int) []Value {
	n := float64(streams)
	return []Value{
		{float64(now.Heap+now.Stacks-alone.Heap-alone.Stacks) / n, "B/stream"},
		{float64(now.Stacks-alone.Stacks) / n, "stack-B/stream"},
		{float64(now.RSS-alone.RSS) / n, "RSS-B/stream"},
	}
}

// start starts a server and connects its clients.
func (p *Push) start(ctx context.Context, kind string) (*crowd, error) {
	proc, err := process.Start(ctx, strings.TrimSuffix(kind, mixed))
	if err != nil {
		return nil, err
	}
	c := &crowd{kind: kind, process: proc, audience: newAudience(p.Streams)}
	if c.alone, err = c.rest(); err == nil {
		err = c.connect(ctx, proc.Address, p.PerConnection, fleet.Names(p.Subscriptions), strings.HasSuffix(kind, mixed))
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// rest waits until the server rests and returns its memory in use then.
func (c *crowd) rest() (process.Memory, error) {
	if _, err := c.process.Quiet(); err != nil {
		return process.Memory{}, err
	}
	return c.process.Memory()
}

func (c *crowd) close() {
	_ = c.process.Stop() // first, so that its profile still shows the streams
	c.audience.close()
}

var errNothing = errors.New("nothing was measured")

// round changes endpoints one after the other, each after all streams have the
// one before and the server has come to rest.
func (p *Push) round(ctx context.Context, c *crowd, round int) ([]Result, error) {
	before, err := c.process.Quiet()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	var results []Result
	for i := range p.Changes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		sent := time.Now()
		if err := c.process.Change((round*p.Changes + i) % p.Subscriptions); err != nil {
			return nil, err
		}
		if err := c.wait(); err != nil {
			return nil, err
		}
		results = append(results, Result{
			Name: "Reach" + p.Name()[len("Push"):] + "/server=" + c.kind, N: 1,
			Values: []Value{{milliseconds(c.at99.Sub(sent)), "99%-ms"}, {milliseconds(c.atLast.Sub(sent)), "last-ms"}},
		})
		if _, err := c.process.Quiet(); err != nil {
			return nil, err
		}
		if time.Since(begun) > roundTime {
			break
		}
	}
	after, err := c.process.Quiet()
	if err != nil {
		return nil, err
	}
	n := int64(p.Streams) * int64(len(results))
	if n == 0 {
		return nil, errNothing
	}
	return append(results, Result{
		Name: p.Name() + "/server=" + c.kind, N: n,
		Values: []Value{{float64(after.CPU-before.CPU) / float64(n), "cpu-ns/response"}},
	}), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
