package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

const maintainer = "The Isobar maintainers <maintainers@isobar.dev>"

// postinst makes the user of the units. It starts nothing: the configuration is the
// operator's to write.
const postinst = `#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent passwd isobar >/dev/null || useradd --system --home-dir /var/lib/isobar --shell /usr/sbin/nologin isobar
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart isobar.service isobar-checker.service || true
`

const prerm = `#!/bin/sh
set -e
[ "$1" = remove ] && [ -d /run/systemd/system ] || exit 0
systemctl disable --now isobar.service isobar-checker.service || true
`

// makeDeb makes the package of Debian for an architecture of Linux.
func (r *maker) makeDeb(p platform, binary []byte, t *texts) ([]byte, error) {
	files, err := r.debFiles(binary, t)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range files {
		size += len(e.data)
	}
	control := fmt.Sprintf(`Package: isobar
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Depends: passwd
Section: net
Priority: optional
Homepage: https://github.com/isobar-xds/isobar
Description: global load balancer for Envoy and proxyless gRPC fleets
 Clients report load to Isobar. Isobar computes one global assignment from
 demand, capacity, health and distance, and serves each client locality its
 share over xDS.
`, strings.Replace(r.number(), "-", "~", 1), p.arch, maintainer, (size+1023)/1024)
	controlTar, err := zipped(pack([]entry{
		{name: "./control", mode: 0o644, data: []byte(control)},
		{name: "./postinst", mode: 0o755, data: []byte(postinst)}, {name: "./prerm", mode: 0o755, data: []byte(prerm)},
	}, r.date))
	if err != nil {
		return nil, err
	}
	dataTar, err := zipped(pack(files, r.date))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", controlTar}, {"data.tar.gz", dataTar}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, r.date.Unix(), 0, 0, "100644", len(m.data))
		b.Write(m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// debFiles lists what the package installs.
func (r *maker) debFiles(binary []byte, t *texts) ([]entry, error) {
	files, err := r.documents("./usr/share/doc/isobar")
	if err != nil {
		return nil, err
	}
	for i := range files { // Debian's name of the licence
		if strings.HasSuffix(files[i].name, "/LICENSE") {
			files[i].name = "./usr/share/doc/isobar/copyright"
		}
	}
	files = append(files, entry{name: "./usr/bin/isobar", mode: 0o755, data: binary})
	units, err := r.tree("deploy/systemd", "./usr/lib/systemd/system")
	if err != nil {
		return nil, err
	}
	for i := range units {
		units[i].data = bytes.ReplaceAll(units[i].data, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	}
	examples, err := r.tree("examples", "./usr/share/doc/isobar/examples")
	if err != nil {
		return nil, err
	}
	files = slices.Concat(files, units, examples)
	for shell, at := range map[string]string{
		"bash": "bash-completion/completions/isobar", "zsh": "zsh/vendor-completions/_isobar", "fish": "fish/vendor_completions.d/isobar.fish",
	} {
		files = append(files, entry{name: "./usr/share/" + at, mode: 0o644, data: t.completions[shell]})
	}
	for name, text := range t.manuals {
		data, err := zipped(text, nil)
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: "./usr/share/man/man1/" + name + ".gz", mode: 0o644, data: data})
	}
	return files, nil
}
