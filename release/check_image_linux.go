package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// blobs are the files of a layout.
type blobs map[string]entry

// read reads a blob, whose digest has to be that of its content.
func (b blobs) read(d v1.Descriptor, into any) error {
	e, ok := b["blobs/"+d.Digest.Algorithm+"/"+d.Digest.Hex]
	if !ok || int64(len(e.data)) != d.Size || fmt.Sprintf("%x", sha256.Sum256(e.data)) != d.Digest.Hex {
		return fmt.Errorf("blob %s is missing or another one", d.Digest)
	}
	if data, raw := into.(*[]byte); raw {
		*data = e.data
		return nil
	}
	return json.Unmarshal(e.data, into)
}

// checkImage reads the image as a container runtime does, and runs the one of this
// machine from its files alone, as its user.
func (r *checker) checkImage(ctx context.Context, work string) error {
	data, err := os.ReadFile(r.file(r.image()))
	if err != nil {
		return err
	}
	files, err := unpack(data)
	if err != nil {
		return err
	}
	all := blobs(files)
	var outer, index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"].data, &outer); err != nil {
		return err
	}
	if len(outer.Manifests) != 1 || outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != r.number() {
		return fmt.Errorf("index.json: %s", files["index.json"].data)
	}
	if err := all.read(outer.Manifests[0], &index); err != nil {
		return err
	}
	var seen []string
	for _, d := range index.Manifests {
		p := platform{d.Platform.OS, d.Platform.Architecture}
		seen = append(seen, p.String())
		root := filepath.Join(work, p.arch)
		config, err := r.checkManifest(all, d, p, root)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if p == here() {
			if err := r.checkServes(ctx, config, root); err != nil {
				return fmt.Errorf("running the image: %w", err)
			}
		}
	}
	if slices.Sort(seen); strings.Join(seen, " ") != "linux_amd64 linux_arm64" {
		return fmt.Errorf("the image is for %q", seen)
	}
	return nil
}

// checkManifest unpacks the image of a platform into a directory.
func (r *checker) checkManifest(all blobs, d v1.Descriptor, p platform, root string) (*v1.ConfigFile, error) {
	var m v1.Manifest
	var config v1.ConfigFile
	if err := all.read(d, &m); err != nil {
		return nil, err
	}
	if err := all.read(m.Config, &config); err != nil {
		return nil, err
	}
	if config.OS != p.os || config.Architecture != p.arch || config.Config.Labels["org.opencontainers.image.revision"] != r.commit || len(m.Layers) != 1 {
		return nil, fmt.Errorf("configuration %+v, %d layers", config, len(m.Layers))
	}
	var layer []byte
	if err := all.read(m.Layers[0], &layer); err != nil {
		return nil, err
	}
	files, err := unpack(layer)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"].data, []byte("BEGIN CERTIFICATE")); n < 100 {
		return nil, fmt.Errorf("%d certificates of authorities", n)
	}
	if files["var/lib/isobar"].uid != imageUser {
		return nil, errors.New("the state directory is not of the user")
	}
	if err := r.checkProgram(p, files["usr/local/bin/isobar"].data); err != nil {
		return nil, err
	}
	return &config, write(root, files)
}

// checkServes runs the image with a configuration of a user, until it is ready, and has it
// stop. The process sees the files of the image only.
func (r *checker) checkServes(ctx context.Context, config *v1.ConfigFile, root string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	text := fmt.Sprintf("xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: %q}\nstate_dir: /var/lib/isobar\nstop_spread: 1s\nservices:\n"+
		"  - {name: checkout, localities: [{locality: us-east/b, endpoints: [\"127.0.0.1:9\"]}]}\n", address)
	if err := write(root, map[string]entry{"c": {name: "etc/isobar/isobar.yaml", mode: 0o644, data: []byte(text)}}); err != nil {
		return err
	}
	command := slices.Concat(config.Config.Entrypoint, config.Config.Cmd)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = config.Config.WorkingDir, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: imageUser, Gid: imageUser}
	} else {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getgid(), Size: 1}}
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ready := waitReady(ctx, "http://"+address+"/readyz")
	stopped := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	if err := errors.Join(ready, stopped); err != nil {
		return fmt.Errorf("%w\n%s", err, log.String())
	}
	state, err := os.ReadDir(filepath.Join(root, "var/lib/isobar"))
	if err != nil || len(state) == 0 {
		return fmt.Errorf("the process kept no state: %w", err)
	}
	return nil
}

// waitReady waits at most half a minute until the server says that it is ready.
func waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
