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
	b.WriteString("\n| Fault | Measured | Bound | Median | Longest | Times | Failed requests | Versions that went back or had two contents |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		bound := "none"
		if r.fault.bound > 0 {
			bound = fmt.Sprintf("%.0f s", r.fault.bound.Seconds())
		}
		took := slices.Sorted(slices.Values(r.took))
		if len(took) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f s | %.1f s | %d | %d of %d | %d |\n", r.fault.name, r.fault.what, bound,
			took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), len(took), r.failed, r.sent, len(r.seen))
	}
	b.WriteString("\n")
	return b.String()
}
