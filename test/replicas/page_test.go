package replicas

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// faultsPage is the page with the figures of TestFaults.
const faultsPage = "../../docs/reference/replica-faults.md"

const faultsBegin, faultsEnd = "<!-- figures: make faults -->\n", "<!-- end of figures -->\n"

// writeFaults replaces the figures in the page.
func writeFaults(results []*result) error {
	data, err := os.ReadFile(faultsPage)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), faultsBegin)
	_, after, ends := strings.Cut(rest, faultsEnd)
	if !ok || !ends {
		return fmt.Errorf("%s lacks %q and %q", faultsPage, faultsBegin, faultsEnd)
	}
	return os.WriteFile(faultsPage, []byte(before+faultsBegin+table(results)+faultsEnd+after), 0o644)
}

func table(results []*result) string {
	var b strings.Builder
	b.WriteString("\n| Fault | Measured | Bound | Median | Longest | Times | Missed | Failed requests | Versions that went back or had two contents |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		bound := "none"
		if r.fault.bound > 0 {
			bound = fmt.Sprintf("%.0f s", r.fault.bound.Seconds())
		}
		took := slices.Sorted(slices.Values(r.took))
		median, longest := "none", "none"
		if n := len(took); n > 0 {
			median, longest = fmt.Sprintf("%.1f s", took[n/2].Seconds()), fmt.Sprintf("%.1f s", took[n-1].Seconds())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %d | %d | %d of %d | %d |\n", r.fault.name, r.fault.what, bound,
			median, longest, r.played, r.missed, r.failed, r.sent, len(r.seen))
	}
	b.WriteString("\n")
	return b.String()
}
