// Package console serves the web console: the files that `npm run build` in
// console/ makes, which are part of the program. It knows nothing of what they
// show; that comes from the admin API.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// dist is what `make console` makes from console/.
//
//go:embed dist
var dist embed.FS

// licences is what `make licenses` collects of all that the program holds.
//
//go:embed licenses.txt
var licences []byte

// policy lets the page load its own files and speak with the server that it came
// from, and nothing else. There is no inline script, and no element may be made
// from a string but by the templates of the compiled components.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types svelte-trusted-html"

// file is one file as it goes over the wire.
type file struct {
	mediaType string
	plain     []byte
	packed    []byte // gzip; nil where that is not smaller
	immutable bool   // the name changes with the content
}

// Handler serves the console. It answers GET and HEAD for the paths of its
// files, relative to where it is mounted; "" is the page.
func Handler() (http.Handler, error) {
	files, err := load()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		secure(w.Header())
		f, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		f.serve(w, r)
	}), nil
}

func load() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := dist.ReadFile(p)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, "dist/")
		files[name], err = newFile(name, data)
		return err
	})
	if err != nil {
		return nil, err
	}
	files["licenses.txt"], err = newFile("licenses.txt", licences)
	return files, err
}

// newFile takes names relative to the page.
func newFile(name string, data []byte) (file, error) {
	packed, err := pack(data)
	return file{mediaType: mediaType(name), plain: data, packed: packed, immutable: strings.HasPrefix(name, "assets/")}, err
}

// mediaType does not depend on what the machine knows of file names.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	default:
		return "application/octet-stream"
	}
}

func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() >= len(data) {
		return nil, nil
	}
	return b.Bytes(), nil
}

// secure binds the browser to what the console needs.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if f.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body := f.plain
	if f.packed != nil && takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = f.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; there is nobody to tell
	}
}

// takesGzip reports whether the client lists gzip and does not refuse it with q=0.
func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return !strings.HasPrefix(strings.TrimSpace(q)+"0", "q=0") || strings.Trim(q, " q=0.") != ""
		}
	}
	return false
}
