// Command mutants asks whether the tests would notice. It knows a list of
// bugs that this code could have, each a small change of one file; for each it
// runs the tests that should fail with it.
//
//	go run ./test/mutants            all of them
//	go run ./test/mutants -run load  those whose name matches
//
// The bugs are in bugs/*.yaml. They are applied by go's -overlay, so that the
// working tree stays as it is. A bug that no test notices is a test that is
// missing; a change that nobody could notice does not belong in the list.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// enough is the share of the bugs that tests have to notice.
const enough = 0.9

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(out)
	root := flags.String("root", ".", "the module's root")
	lists := flags.String("bugs", "test/mutants/bugs", "the directory of the lists, relative to the root")
	pattern := flags.String("run", "", "take only bugs whose name matches this regular expression")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long the tests of one package may take; a bug that makes them hang is noticed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("mutants: -run: %w", err)
	}
	all, err := readLists(filepath.Join(*root, *lists))
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if wanted.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("mutants: no bug's name matches %q", *pattern)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing depends on it
	r := &runner{root: *root, dir: dir, timeout: *timeout, out: out}
	if err := r.sound(ctx, chosen); err != nil {
		return err
	}
	results := r.all(ctx, chosen)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	return verdict(out, results)
}

// verdict prints what became of all, and returns an error where too little was
// caught or the list is wrong.
func verdict(out io.Writer, results []result) error {
	byArea := map[string]map[outcome]int{}
	total := map[outcome]int{}
	for i := range results {
		x := &results[i]
		if byArea[x.area()] == nil {
			byArea[x.area()] = map[outcome]int{}
		}
		byArea[x.area()][x.outcome]++
		total[x.outcome]++
	}
	var areas []string
	for a := range byArea {
		areas = append(areas, a)
	}
	slices.SortFunc(areas, cmp.Compare)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\narea\tcaught\tsurvived\tbroken\t\n")
	for _, a := range areas {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", a, byArea[a][caught], byArea[a][survived], byArea[a][broken])
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", total[caught], total[survived], total[broken])
	if err := w.Flush(); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	for i := range results {
		if x := &results[i]; x.outcome != caught {
			_, _ = fmt.Fprintf(out, "%s: %s in %s: %s\n", x.outcome, x.Name, x.File, x.why)
		}
	}
	if total[broken] > 0 {
		return fmt.Errorf("mutants: %d bugs of the list don't fit the code any more", total[broken])
	}
	share := float64(total[caught]) / float64(max(1, len(results)))
	_, _ = fmt.Fprintf(out, "%.1f%% of %d bugs are caught\n", 100*share, len(results))
	if share < enough {
		return fmt.Errorf("mutants: %.1f%% of the bugs are caught, want %.0f%%: write the tests that are missing", 100*share, 100*enough)
	}
	return nil
}
