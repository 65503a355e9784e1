package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"text/tabwriter"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// playLibrary plays each scenario of the library twice: as it is, with what is
// declared trusted, and with capacity_trust: observed.
func playLibrary(ctx context.Context, o *options, out io.Writer) error {
	files, err := filepath.Glob(filepath.Join(o.library, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no scenarios in %s", o.library)
	}
	_, _ = fmt.Fprintln(out, "\nthe scenario library, by capacity_trust")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SCENARIO\tDECLARED MS\tOBSERVED MS\tCHANGE\tFULLEST\tPEAK\tFAILED\tCLAIRVOYANT MS")
	for _, file := range files {
		if !o.only.MatchString(filepath.Base(file)) {
			continue
		}
		data, err := os.ReadFile(file) //nolint:gosec // a scenario that the user names
		if err != nil {
			return err
		}
		declared, err := o.simulate(ctx, trusting(data, isobar.TrustDeclared))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		observed, err := o.simulate(ctx, trusting(data, isobar.TrustObserved))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		a, b := declared[sim.NameIsobar], observed[sim.NameIsobar]
		_, _ = fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%+.1f%%\t%.1f%%, %.1f%%\t%.1f%%, %.1f%%\t%.2f%%, %.2f%%\t%.2f\n",
			filepath.Base(file), a.MeanMS, b.MeanMS, 100*(b.MeanMS/a.MeanMS-1),
			100*a.Fullest, 100*b.Fullest, 100*a.Peak, 100*b.Peak, 100*a.Failed, 100*b.Failed, declared[sim.NameClairvoyant].MeanMS)
	}
	return t.Flush()
}

var serviceName = regexp.MustCompile(`(?m)^(  - )(name: .*)$`)

// trusting gives each service of a scenario a capacity_trust.
func trusting(scenario []byte, trust isobar.CapacityTrust) []byte {
	return serviceName.ReplaceAll(scenario, []byte("${1}capacity_trust: "+string(trust)+"\n    ${2}"))
}

// simulate plays a scenario and returns results by policy.
func (o *options) simulate(ctx context.Context, scenario []byte) (map[string]sim.Result, error) {
	args := []string{"simulate", "-", "--policy", sim.NameIsobar + "," + sim.NameClairvoyant, "-o", "json"}
	cmd := exec.CommandContext(ctx, o.isobar, args...) //nolint:gosec // a program that the user names
	cmd.Stdin = bytes.NewReader(scenario)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var all []struct {
		Results []sim.Result `json:"policies"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &all); err != nil {
		return nil, err
	}
	out := map[string]sim.Result{}
	for _, s := range all {
		for _, r := range s.Results {
			out[r.Policy] = r
		}
	}
	if len(out) != 2 {
		return nil, fmt.Errorf("results of %d policies, want 2", len(out))
	}
	return out, nil
}
