package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Process is a server process, seen from outside.
type Process struct {
	Kind    string
	Address string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts this program as a server.
func Start(ctx context.Context, kind string, env ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Kind: kind, cmd: exec.CommandContext(ctx, self, "serve", kind)} //nolint:gosec // this program itself
	p.cmd.Stderr = os.Stderr
	p.cmd.Env = append(os.Environ(), env...)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(p.out, &p.Address); err != nil {
		return nil, errors.Join(fmt.Errorf("server %s did not start: %w", kind, err), p.Stop())
	}
	return p, nil
}

// Stop ends the process.
func (p *Process) Stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Change has one endpoint of a cluster changed. It returns at once.
func (p *Process) Change(cluster int) error {
	_, err := fmt.Fprintln(p.in, "change", cluster)
	return err
}

// Stats asks for what the process has used.
func (p *Process) Stats() (Stats, error) {
	var s Stats
	if _, err := fmt.Fprintln(p.in, "stats"); err != nil {
		return s, err
	}
	var cpu int64
	_, err := fmt.Fscanln(p.out, &cpu, &s.Counted)
	s.CPU = time.Duration(cpu)
	return s, err
}

// Memory collects the garbage of the process and asks for what remains.
func (p *Process) Memory() (m Memory, err error) {
	if _, err := fmt.Fprintln(p.in, "memory"); err != nil {
		return m, err
	}
	_, err = fmt.Fscanln(p.out, &m.Heap, &m.Stacks, &m.RSS)
	return m, err
}

// Collect has the process collect its garbage, and waits for that.
func (p *Process) Collect() error {
	if _, err := fmt.Fprintln(p.in, "collect"); err != nil {
		return err
	}
	_, err := p.out.ReadString('\n')
	return err
}

// Goroutines asks for how many goroutines the process has.
func (p *Process) Goroutines() (n int, err error) {
	if _, err := fmt.Fprintln(p.in, "goroutines"); err != nil {
		return 0, err
	}
	_, err = fmt.Fscanln(p.out, &n)
	return n, err
}

// Bounds of Quiet.
const (
	quietEvery = 10 * time.Millisecond
	quietBelow = 500 * time.Microsecond // of CPU in that time
	quietTries = 1_000
)

// Quiet waits until the process has nothing left to do, and returns what it has
// used by then.
func (p *Process) Quiet() (Stats, error) {
	last, err := p.Stats()
	for range quietTries {
		if err != nil {
			return last, err
		}
		<-time.After(quietEvery)
		var next Stats
		next, err = p.Stats()
		if err == nil && next.CPU-last.CPU < quietBelow {
			return next, nil
		}
		last = next
	}
	return last, errors.Join(err, fmt.Errorf("server %s does not come to rest", p.Kind))
}
