package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/replay"
)

// anonymising says whether a trace gets pseudonyms.
type anonymising struct {
	wanted bool
	from   string // a trace that is there already
}

func (a *anonymising) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.wanted, "anonymise", false, "write pseudonyms instead of all names and addresses")
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
// stands beside it until then, and stays where that fails: what was recorded does
// not come again.
func (a *anonymising) record(file string, record func(file string) error) error {
	if !a.wanted {
		return record(file)
	}
	if err := writable(file); err != nil {
		return err
	}
	own := file + ".names"
	if _, err := os.Lstat(own); err == nil {
		return fmt.Errorf("%s is there from a recording that failed: remove it, or give it pseudonyms with --from %s", own, own)
	}
	err := record(own)
	if err == nil {
		err = anonymise(own, file)
	}
	if err == nil {
		return os.Remove(own)
	}
	if _, gone := os.Lstat(own); gone == nil {
		err = fmt.Errorf("%w; what was recorded stays in %s, with all names: isobar record -o %s --anonymise --from %s tries again", err, own, file, own)
	}
	return err
}

// writable is an error where a file is there and can't be written: that is to be
// known before it is recorded for an hour. A pipe is not opened, which would wait
// for its reader.
func writable(file string) error {
	if info, err := os.Stat(file); err == nil && (info.Mode().IsRegular() || info.IsDir()) {
		out, err := os.OpenFile(file, os.O_WRONLY, 0) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		return out.Close()
	}
	return nil
}

// anonymise writes a trace under pseudonyms; on an error it leaves no file, or the
// one that was there.
func anonymise(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	if same(in, to) {
		return fmt.Errorf("%s: write the pseudonyms to another file", to)
	}
	if err := writable(to); err != nil {
		return err
	}
	info, err := os.Lstat(to)
	special := err == nil && !info.Mode().IsRegular() // a pipe, or a way to somewhere: nothing takes its place
	var out *os.File
	if special {
		out, err = os.OpenFile(to, os.O_TRUNC|os.O_WRONLY, 0) //nolint:gosec // the user names it
	} else {
		out, err = os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	}
	if err != nil {
		return err
	}
	err = errors.Join(replay.Anonymise(out, in), out.Close())
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", from, err)
	case !special:
		err = os.Rename(out.Name(), to)
	}
	if err != nil && !special {
		_ = os.Remove(out.Name()) // the error before it is the one to tell
	}
	return err
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
