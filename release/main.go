// Command release makes what a release consists of, and checks it:
//
//	go run . -source .. -version v0.1.0 -commit COMMIT -out dist make
//	go run . -source .. -version v0.1.0 -commit COMMIT -out dist check
//
// Both need the modules of go.mod in the module cache and no network. The same sources,
// version and commit give the same files, byte for byte, in any directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release says what is made.
type release struct {
	source  string // the checkout
	out     string // where the files go
	version string // vX.Y.Z
	commit  string
	date    time.Time // of the commit: that of all files
}

// platform is one that archives are made for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// platforms are those of archives; packages and images are made for those of Linux.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

var versionPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	r := &release{}
	var seconds int64
	flag.StringVar(&r.source, "source", "..", "checkout of the sources")
	flag.StringVar(&r.out, "out", "dist", "directory of the files")
	flag.StringVar(&r.version, "version", "", "version, as in v0.1.0")
	flag.StringVar(&r.commit, "commit", "", "commit of the sources")
	flag.Int64Var(&seconds, "date", 0, "time of the commit, in seconds since 1970")
	flag.Parse()
	if !versionPattern.MatchString(r.version) || r.commit == "" || seconds == 0 || flag.NArg() != 1 {
		return errors.New("want -version vX.Y.Z -commit COMMIT -date SECONDS, and make or check")
	}
	r.date = time.Unix(seconds, 0).UTC()
	var err error
	if r.source, err = filepath.Abs(r.source); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	switch flag.Arg(0) {
	case "make":
		return (&maker{r}).make(ctx)
	case "check":
		return (&checker{r}).check(ctx, out)
	}
	return fmt.Errorf("unknown command %q", flag.Arg(0))
}

// number is the version without its v, as packages have it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// file returns the path of an artefact.
func (r *release) file(name string) string { return filepath.Join(r.out, name) }

func (r *release) archive(p platform) string {
	return fmt.Sprintf("isobar_%s_%s.tar.gz", r.number(), p)
}

func (r *release) sbom(p platform) string {
	return fmt.Sprintf("isobar_%s_%s.spdx.json", r.number(), p)
}

func (r *release) deb(p platform) string { return fmt.Sprintf("isobar_%s_%s.deb", r.number(), p.arch) }

func (r *release) image() string { return fmt.Sprintf("isobar_%s_oci.tar", r.number()) }

func (r *release) chart() string { return fmt.Sprintf("isobar-chart-%s.tgz", r.number()) }
