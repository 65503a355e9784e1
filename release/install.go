package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/isobar-xds/isobar"

// checkInstall asserts that `go install` of the module's version works: from a proxy that
// has the module as a user's proxy does, and other modules from the module cache.
func (r *checker) checkInstall(ctx context.Context, work string) error {
	proxy := filepath.Join(work, "proxy")
	at := filepath.Join(proxy, filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(at, 0o750); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(r.source, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": r.version, "Time": r.date})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(r.version + "\n"), r.version + ".mod": mod, r.version + ".info": info} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o600); err != nil {
			return err
		}
	}
	clone := filepath.Join(work, "clone") // zip does not know work trees
	if out, err := exec.CommandContext(ctx, "git", "clone", "-q", "--no-checkout", r.source, clone).CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w: %s", err, out)
	}
	archive, err := os.Create(filepath.Join(at, r.version+".zip"))
	if err != nil {
		return err
	}
	err = zip.CreateFromVCS(archive, module.Version{Path: modulePath, Version: r.version}, clone, r.commit, "")
	if err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return r.install(ctx, work, proxy)
}

func (r *checker) install(ctx context.Context, work, proxy string) error {
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	known := filepath.Join(string(cache[:len(cache)-1]), "cache", "download")
	bin, own := filepath.Join(work, "bin"), filepath.Join(work, "modules")
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", modulePath+"/cmd/isobar@"+r.version)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+own, "GOPROXY=file://"+proxy+",file://"+known, "GOSUMDB=off",
		"GOFLAGS=-modcacherw", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "isobar"), "version", "-o", "json").Output()
	if err != nil {
		return err
	}
	var b struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(out, &b); err != nil {
		return err
	}
	if b.Version != r.version {
		return fmt.Errorf("go install makes a program that tells %s", out)
	}
	return nil
}
