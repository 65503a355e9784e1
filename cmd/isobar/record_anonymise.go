package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/trace"
)

// anonymising says whether a trace gets pseudonyms.
type anonymising struct {
	wanted bool
	from   string // a trace that is there already
}

func (a *anonymising) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.wanted, "anonymise", false, "write pseudonyms in the place of all names and addresses")
	cmd.Flags().StringVar(&a.from, "from", "", "anonymise this trace, instead of recording one")
	_ = cmd.MarkFlagFilename("from") // fails only for a flag that is not there
}

// copy anonymises a trace that is there.
func (a *anonymising) copy(cmd *cobra.Command, file string) error {
	if !a.wanted {
		return asUsage(cmd, errors.New("--from goes with --anonymise: a trace is copied as it is by any tool"))
	}
	return anonymise(a.from, file)
}

// record records to a file. One that gets pseudonyms is written from one that
// stands beside it until then.
func (a *anonymising) record(file string, record func(file string) error) error {
	if !a.wanted {
		return record(file)
	}
	own := file + ".names"
	defer func() { _ = os.Remove(own) }() // it may not be there
	if err := record(own); err != nil {
		return err
	}
	return anonymise(own, file)
}

// anonymise writes a trace under pseudonyms; on an error it leaves no file.
func anonymise(from, to string) (err error) {
	in, err := os.Open(from) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	if same(in, to) {
		return fmt.Errorf("%s: write the pseudonyms to another file", to)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = fmt.Errorf("%s: %w", from, err)
			_ = os.Remove(to)
		}
	}()
	return trace.Anonymise(out, in)
}

// same tells whether a file is the one at a path.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}
