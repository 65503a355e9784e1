package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/filewatch"
)

const (
	// maxFile bounds a file that is read, in bytes.
	maxFile = 4 << 20
	// settle is for how long files must stay the same before they count, as with the
	// configuration file.
	settle = 1500 * time.Millisecond
	// maxChanging is for how long they may go on changing without a word.
	maxChanging = 30 * time.Second
)

var errChanging = errors.New("the files are being changed all the time")

// follower keeps something up to date with files. What changes in it changes in
// the goroutine of Follow.
type follower struct {
	what    string
	paths   []string
	opts    Options
	replace func(contents [][]byte) error

	seen     [sha256.Size]byte // of the contents in force
	settling filewatch.Settling
	refused  atomic.Pointer[string] // the error that was logged last; nil when all is well
}

// Refused tells why what the files hold now is not in force; empty when it is.
func (f *follower) Refused() string {
	if why := f.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// open reads the files for the first time.
func (f *follower) open() error {
	contents, sum, err := f.read()
	if err == nil {
		err = f.replace(contents)
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", f.what, f.opts.Name, err)
	}
	f.seen = sum
	f.opts.Metrics.good.WithLabelValues(f.opts.Name, f.what).Set(1)
	return nil
}

func (f *follower) read() (contents [][]byte, sum [sha256.Size]byte, err error) {
	all := sha256.New()
	for _, path := range f.paths {
		data, err := filewatch.Read(path, maxFile)
		if err != nil {
			return nil, sum, err
		}
		one := sha256.Sum256(data)
		all.Write(one[:])
		contents = append(contents, data)
	}
	return contents, [sha256.Size]byte(all.Sum(nil)), nil
}

// check reads the files again, and takes what has stayed the same for settle: a part of
// a token may look whole, and a key comes after its certificate. It returns when to look
// again at what is not at rest yet, 0 for never. What is bad is logged and counted once,
// and what was good goes on.
func (f *follower) check() (again time.Duration) {
	contents, sum, err := f.read()
	if err == nil && sum == f.seen {
		f.settling.Done()
		f.accepted()
		return 0
	}
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error())) // a file that is replaced may be away for a moment
	}
	wait, changing := f.settling.Rest(sum, time.Now(), settle)
	switch {
	case wait > 0 && changing >= maxChanging:
		f.refuse(fmt.Errorf("%s: %w: Isobar reads them once they have not changed for %v", strings.Join(f.paths, ", "), errChanging, settle))
		return wait
	case wait > 0:
		return wait
	}
	if err == nil {
		err = f.replace(contents)
	}
	if err == nil {
		f.seen = sum
		f.settling.Done()
		f.opts.Metrics.reloads.WithLabelValues(f.opts.Name, f.what, resultOK).Inc()
		f.opts.Log.Info("files reloaded; new connections use them", "listener", f.opts.Name, "what", f.what)
		f.accepted()
		return 0
	}
	f.refuse(err)
	return 0
}

// refuse tells why the files are not taken, once for each reason.
func (f *follower) refuse(err error) {
	f.opts.Metrics.good.WithLabelValues(f.opts.Name, f.what).Set(0)
	why := err.Error()
	if why == f.Refused() {
		return
	}
	f.refused.Store(&why)
	f.opts.Metrics.reloads.WithLabelValues(f.opts.Name, f.what, resultRefused).Inc()
	f.opts.Log.Error("rejected files; their previous contents stay in force", "listener", f.opts.Name, "what", f.what, "error", err)
}

func (f *follower) accepted() {
	f.opts.Metrics.good.WithLabelValues(f.opts.Name, f.what).Set(1)
	f.refused.Store(nil)
}

// Follow keeps up with the files until ctx ends.
func (f *follower) Follow(ctx context.Context) {
	filewatch.Watch(ctx, f.paths, filewatch.Options{Trigger: f.opts.Trigger, Logger: f.opts.Log}, f.check)
}

// Bounds of a token, in bytes. What is shorter can be guessed.
const (
	minToken = 16
	maxToken = 4096
)

// errToken says what a token has to be.
var errToken = errors.New("want one line of 16 to 4096 printable characters, for example of `openssl rand -hex 32`")

// Token is a secret that operators show. It follows its file as long as Follow
// runs. It is safe for concurrent use.
type Token struct {
	follower

	current atomic.Pointer[[sha256.Size]byte]
}

// OpenToken reads the file.
func OpenToken(path string, o Options) (*Token, error) {
	t := &Token{}
	t.what, t.paths, t.opts, t.follower.replace = "token", []string{path}, o.withDefaults(), t.replace
	if err := t.open(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Token) replace(contents [][]byte) error {
	token, err := parseToken(contents[0])
	if err != nil {
		return fmt.Errorf("%s: %w", t.paths[0], err)
	}
	sum := sha256.Sum256([]byte(token))
	t.current.Store(&sum)
	return nil
}

// parseToken reads the content of a token file: blanks around the token don't
// count.
func parseToken(content []byte) (string, error) {
	token := bytes.TrimSpace(content)
	printable := func(b byte) bool { return b > ' ' && b < 0x7f }
	if len(token) < minToken || len(token) > maxToken {
		return "", errToken
	}
	for _, b := range token {
		if !printable(b) {
			return "", errToken
		}
	}
	return string(token), nil
}

// Valid reports whether what was presented is the token, in a time that does not
// depend on where they differ.
func (t *Token) Valid(presented string) bool {
	sum := sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(sum[:], t.current.Load()[:]) == 1
}
