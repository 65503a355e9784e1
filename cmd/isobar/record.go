package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plural"
	"github.com/isobar-xds/isobar/internal/replay"
)

const (
	defaultRecording = 10 * time.Minute
	// recordAgain is between two attempts to reach a server that went away.
	recordAgain = time.Second
)

func recordCommand() *cobra.Command {
	var flags remoteFlags
	var file string
	var hide anonymising
	length := defaultRecording
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record the inputs and decisions of a running server, for isobar replay",
		Long: `Record a trace of a running server: its state, then each load report, health
report, change of the configuration and operator command, and a digest of each
plan. "isobar replay" repeats the decisions. Recording does not slow the server: if
the reader does not keep up, the server ends the recording. If the server restarts,
the recording continues with the new process. A trace contains names and addresses
of services and clients. With --anonymise it contains pseudonyms instead, so that
you can share it; --from anonymises an existing trace. Numbers and times stay. The
command refuses to anonymise a trace if pseudonyms would change a decision.`,
		Example: "  isobar record -o monday.trace --for 10m\n  isobar replay monday.trace\n" +
			"  isobar record -o shared.trace --anonymise --from monday.trace",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length <= 0 || length > admin.MaxRecording {
				return asUsage(cmd, fmt.Errorf("--for %s: want a duration above 0 and of at most %s", length, admin.MaxRecording))
			}
			if hide.from != "" {
				return hide.copy(cmd, file)
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			return hide.record(file, func(file string) error {
				return record(cmd.Context(), remote, file, length, cmd.ErrOrStderr())
			})
		},
	}
	flags.registerServer(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write")
	cmd.Flags().DurationVar(&length, "for", length, "how long to record")
	hide.register(cmd)
	_ = cmd.MarkFlagRequired("output") // these fail only for a flag that is not there
	_ = cmd.MarkFlagFilename("output")
	return cmd
}

// record writes the file until the time is over or the user has enough; in both
// cases it is whole. Until the server sends something the file stays as it is.
func record(ctx context.Context, remote *admin.Remote, file string, length time.Duration, stderr io.Writer) (err error) {
	out, made, err := openTrace(file)
	if err != nil {
		return err
	}
	r := &recordingRun{remote: remote, out: out, began: time.Now(), length: length, stderr: stderr, bar: newProgressBar(stderr, 1)}
	defer func() {
		err = errors.Join(err, out.Close())
		if made && r.written == 0 {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	err = r.run(ctx)
	r.bar.clear()
	switch {
	case err != nil:
		return err
	case r.written == 0: // the user had enough before it began
		return errors.New("nothing was recorded")
	}
	return r.tell()
}

// openTrace opens a file for a trace, and reports whether it made it. What is in it
// stays: whether there will be another trace in its place, only the server knows.
func openTrace(file string) (out *os.File, made bool, err error) {
	out, err = os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // the user names it
	if errors.Is(err, fs.ErrExist) {
		out, err = os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // as above
		return out, false, err
	}
	return out, true, err
}

// recordingRun is a recording under way.
type recordingRun struct {
	remote  *admin.Remote
	out     *os.File
	began   time.Time
	length  time.Duration
	stderr  io.Writer
	bar     *progressBar
	written int64
}

func (r *recordingRun) run(ctx context.Context) error {
	away := false
	for first := true; ctx.Err() == nil; first = false {
		left := r.length - time.Since(r.began)
		if left <= 0 {
			return nil
		}
		more, err := r.once(ctx, left)
		switch {
		case err == nil && !more:
			return nil
		case ctx.Err() != nil: // the user has enough
		case first && r.written == 0, errors.Is(err, errFile), errors.Is(err, replay.ErrFormat):
			return err // another address, no token, or a full server: it would not go away
		case !away:
			_, _ = fmt.Fprintln(r.stderr, "isobar: the server does not answer; the recording continues when it does") // nobody to tell
		}
		away = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(recordAgain):
		}
	}
	return nil
}

// once records for as long as the server is there, and reports whether there may
// be more to record after that.
func (r *recordingRun) once(ctx context.Context, left time.Duration) (more bool, err error) {
	stream, err := r.remote.Record(ctx, left)
	if err != nil {
		return false, err
	}
	err = replay.Copy(r, stream)
	_ = stream.Close() // it was read to its end, or can't be
	if err != nil {
		return false, err
	}
	found, err := r.skim()
	return found.Ended == replay.EndStopped, err
}

// skim tells what the file holds.
func (r *recordingRun) skim() (replay.Contents, error) {
	found, err := replay.Skim(io.NewSectionReader(r.out, 0, r.written))
	if errors.Is(err, replay.ErrCut) {
		err = nil // what is whole can be replayed
	}
	return found, err
}

// errFile says that the file can't be written.
var errFile = errors.New("writing the trace")

// Write implements io.Writer, with progress. The first write takes the place of
// what was in the file.
func (r *recordingRun) Write(b []byte) (n int, err error) {
	if r.written == 0 {
		err = empty(r.out)
	}
	if err == nil {
		n, err = r.out.Write(b)
	}
	if err != nil {
		return n, fmt.Errorf("%w: %w", errFile, err)
	}
	r.written += int64(n)
	r.bar.line("recording, "+bytesText(r.written), min(1, float64(time.Since(r.began))/float64(r.length)))
	return n, nil
}

// empty truncates a file; a pipe has nothing to truncate.
func empty(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return f.Truncate(0)
}

// tell says what was recorded.
func (r *recordingRun) tell() error {
	found, err := replay.Skim(io.NewSectionReader(r.out, 0, r.written))
	if err == nil && found.Recordings > 0 && found.Ended == "" { // the user has enough
		err = replay.Finish(r)
	}
	if err != nil && !errors.Is(err, replay.ErrCut) {
		return err
	}
	text := ""
	if found.Recordings > 1 {
		text = fmt.Sprintf(" in %d parts, because the server was unreachable between them", found.Recordings)
	}
	_, _ = fmt.Fprintf(r.stderr, "%s recorded%s: %s, %s\n", plural.Count(found.Plans, "plan", "plans"), text, bytesText(r.written), r.out.Name()) // nobody to tell
	switch found.Ended {
	case replay.EndFinished, replay.EndStopped, "":
		return nil
	default:
		return fmt.Errorf("the recording ended early: %s; the recorded part can be replayed", found.Ended)
	}
}

// bytesText shows a size.
func bytesText(n int64) string {
	const kilo, mega = 1e3, 1e6
	switch {
	case n >= mega:
		return fmt.Sprintf("%.1f MB", float64(n)/mega)
	case n >= kilo:
		return fmt.Sprintf("%.1f KB", float64(n)/kilo)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

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
		return asUsage(cmd, errors.New("--from requires --anonymise: to copy a trace unchanged, copy the file"))
	}
	return anonymise(a.from, file)
}

// record records to a file. If it gets pseudonyms, the command records to another file
// beside it first. If that step fails, the other file stays, because what was recorded
// does not happen again.
func (a *anonymising) record(file string, record func(file string) error) error {
	if !a.wanted {
		return record(file)
	}
	if err := writable(file); err != nil {
		return err
	}
	own := file + ".names"
	if _, err := os.Lstat(own); err == nil {
		return fmt.Errorf("%s is left from a failed recording: remove it, or anonymise it with --from %s", own, own)
	}
	err := record(own)
	if err == nil {
		err = anonymise(own, file)
	}
	if err == nil {
		return os.Remove(own)
	}
	if _, gone := os.Lstat(own); gone == nil {
		err = fmt.Errorf("%w; the recording stays in %s, with all names; to try again: isobar record -o %s --anonymise --from %s", err, own, file, own)
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

// same reports whether a file is the one at a path.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}
