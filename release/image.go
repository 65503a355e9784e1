package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the process in the image; it owns the state directory.
const imageUser = 65532

// certificates are those of public authorities, as Mozilla has them.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
	}
	return b.Bytes()
}

// makeImage makes an OCI image from scratch for the architectures of Linux, as a layout in
// a tar archive, without a daemon.
func (r *maker) makeImage(work string, binaries map[platform][]byte) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.imageOf(p, binaries[p])
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	dir := filepath.Join(work, "image")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.number()})); err != nil {
		return nil, err
	}
	var entries []entry
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		entries = append(entries, entry{name: filepath.ToSlash(rel), mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return pack(entries, r.date)
}

func (r *maker) imageOf(p platform, binary []byte) (v1.Image, error) {
	files, err := pack([]entry{
		{name: "usr/local/bin/isobar", mode: 0o755, data: binary},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		{name: "var/lib/isobar", mode: 0o700, uid: imageUser},
	}, r.date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "release"}}); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.imageConfig(image, p))
}

// imageConfig says how the image runs, as deploy/container/Dockerfile does.
func (r *maker) imageConfig(image v1.Image, p platform) *v1.ConfigFile {
	c, err := image.ConfigFile()
	if err != nil {
		c = &v1.ConfigFile{}
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = p.os, p.arch, v1.Time{Time: r.date}
	c.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/var/lib/isobar", Entrypoint: []string{"/usr/local/bin/isobar"}, Cmd: []string{"serve", "-c", "/etc/isobar/isobar.yaml"},
		ExposedPorts: map[string]struct{}{"18000/tcp": {}, "18080/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "isobar", "org.opencontainers.image.version": r.number(), "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source": "https://github.com/isobar-xds/isobar", "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return c
}
