package replicas

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// faultsPage is the page with the figures of TestFaults.
const faultsPage = "../../docs/reference/replica-faults.md"

const faultsBegin, faultsEnd = "<!-- figures: make faults -->\n", "<!-- end of figures -->\n"

// writeFaults replaces the rows of these faults in the page. Rows of faults that were not
// played stay, and so do those that a run beside this one writes.
func writeFaults(results []*result) error {
	file, err := os.OpenFile(faultsPage, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // what was written is on the page already
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	page, err := replaceFaults(string(data), results)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(page), 0)
	return err
}

func replaceFaults(page string, results []*result) (string, error) {
	before, rest, ok := strings.Cut(page, faultsBegin)
	old, after, ends := strings.Cut(rest, faultsEnd)
	if !ok || !ends {
		return "", fmt.Errorf("%s lacks %q and %q", faultsPage, faultsBegin, faultsEnd)
	}
	rows := map[string]string{}
	for line := range strings.Lines(old) {
		if cells := strings.Split(line, " | "); len(cells) > 1 {
			rows[strings.TrimPrefix(cells[0], "| ")] = line
		}
	}
	for _, r := range results {
		if r.played > 0 {
			rows[r.fault.name] = r.row()
		}
	}
	var b strings.Builder
	b.WriteString(before + faultsBegin +
		"\n| Fault | Measured | Bound | Median | Longest | Times | Missed | Failed requests | Versions that went back or had two contents |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for i := range faults {
		b.WriteString(rows[faults[i].name])
	}
	b.WriteString("\n" + faultsEnd + after)
	return b.String(), nil
}

// row is the row of the page.
func (r *result) row() string {
	bound := "none"
	if r.fault.bound > 0 {
		bound = fmt.Sprintf("%.0f s", r.fault.bound.Seconds())
	}
	took := slices.Sorted(slices.Values(r.took))
	median, longest := "none", "none"
	if n := len(took); n > 0 {
		median, longest = fmt.Sprintf("%.1f s", took[n/2].Seconds()), fmt.Sprintf("%.1f s", took[n-1].Seconds())
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %d | %d | %d of %d | %d |\n", r.fault.name, r.fault.what, bound,
		median, longest, r.played, r.missed, r.failed, r.sent, len(r.seen))
}

// TestFaultsPage asserts that a run of some faults keeps the rows of the others, and that
// the page has every fault in the order of the table.
func TestFaultsPage(t *testing.T) {
	data, err := os.ReadFile(faultsPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	at := 0
	for i := range faults {
		next := strings.Index(page[at:], "\n| "+faults[i].name+" | "+faults[i].what+" | ")
		if next < 0 {
			t.Fatalf("%s lacks %q after %q", faultsPage, faults[i].name, page[:at])
		}
		at += next + 1
	}
	played := &result{fault: &faults[3], played: 7, missed: 1, took: []time.Duration{time.Second}, sent: 90, failed: 2, seen: []string{"back"}}
	got, err := replaceFaults(page, []*result{played, {fault: &faults[4]}})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| "+faults[3].name+" |") {
			line = "| SIGKILL of the leader | first plan of the next epoch on all replicas | 12 s | 1.0 s | 1.0 s | 7 | 1 | 2 of 90 | 1 |\n"
		}
		want = append(want, line)
	}
	if want := strings.Join(want, ""); got != want {
		t.Errorf("the page is\n%s\nnot\n%s", got, want)
	}
}
