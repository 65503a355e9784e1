package main

import (
	"errors"
	"os"
	"slices"

	"github.com/isobar-xds/isobar/internal/replay"
	"github.com/isobar-xds/isobar/internal/sim"
)

// simulationRecorder writes what a simulated Isobar decides as a trace.
type simulationRecorder struct {
	*replay.Recorder

	out *os.File
}

// newSimulationRecorder puts a recorder into the place of Isobar among the
// policies; nil where no file is named.
func newSimulationRecorder(file string, scenarios []string, policies []sim.Policy) (*simulationRecorder, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nothing is to be recorded
	}
	i := slices.IndexFunc(policies, func(p sim.Policy) bool { return p.Name == sim.NameIsobar })
	switch {
	case len(scenarios) != 1:
		return nil, usagef("--record takes one scenario, not %d: name its file", len(scenarios))
	case i < 0:
		return nil, usagef("--record takes down %s, which --policy leaves out", sim.NameIsobar)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	r := &simulationRecorder{Recorder: replay.NewRecorder(buildVersion(), 0), out: out}
	policies[i] = sim.Recorded(r)
	return r, nil
}

// Begin implements [sim.Recorder].
func (r *simulationRecorder) Begin(b sim.Beginning) error {
	start := replay.Start(b)
	return r.Recorder.Begin(&start)
}

// Flush implements [sim.Recorder].
func (r *simulationRecorder) Flush() error { return r.WriteNow(r.out) }

// end finishes the file.
func (r *simulationRecorder) end() error {
	if r == nil {
		return nil
	}
	r.End(replay.EndFinished)
	return errors.Join(r.Flush(), r.out.Close())
}
