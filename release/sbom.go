package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
)

// spdx is the part of SPDX 2.3 that is used.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      spdxCreation   `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string          `json:"SPDXID"`
	Name      string          `json:"name"`
	Version   string          `json:"versionInfo"`
	Location  string          `json:"downloadLocation"`
	Analyzed  bool            `json:"filesAnalyzed"`
	Checksums []spdxChecksum  `json:"checksums,omitempty"`
	External  []spdxReference `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

var notOfID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// makeSBOM lists what the program of a platform is made of, by what the compiler wrote
// into it: the modules that are linked, and Go itself.
func makeSBOM(r *release, p platform, binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	out := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "isobar-" + r.number() + "-" + p.String(),
		Namespace: fmt.Sprintf("https://github.com/isobar-xds/isobar/spdx/%s/%s/%x", r.number(), p, sum[:8]),
		Creation:  spdxCreation{Created: r.date.Format("2006-01-02T15:04:05Z"), Creators: []string{"Tool: isobar-release"}},
	}
	main := spdxPackage{
		ID: "SPDXRef-isobar", Name: info.Main.Path, Version: r.version, Location: "https://github.com/isobar-xds/isobar",
		Checksums: []spdxChecksum{{"SHA256", fmt.Sprintf("%x", sum)}},
	}
	out.Packages = append(out.Packages, main)
	out.Relationships = append(out.Relationships, spdxRelation{out.ID, "DESCRIBES", main.ID})
	add := func(q spdxPackage) {
		out.Packages = append(out.Packages, q)
		out.Relationships = append(out.Relationships, spdxRelation{main.ID, "DEPENDS_ON", q.ID})
	}
	add(spdxPackage{ID: "SPDXRef-go", Name: "go", Version: strings.TrimPrefix(info.GoVersion, "go"), Location: "https://go.dev/dl/"})
	for _, d := range info.Deps {
		q, err := packageOf(d)
		if err != nil {
			return nil, err
		}
		add(q)
	}
	return json.MarshalIndent(out, "", "  ")
}

func packageOf(d *debug.Module) (spdxPackage, error) {
	q := spdxPackage{
		ID: "SPDXRef-" + notOfID.ReplaceAllString(d.Path+"-"+d.Version, "-"), Name: d.Path, Version: d.Version, Location: "NOASSERTION",
		External: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + d.Path + "@" + d.Version}},
	}
	if d.Replace != nil {
		return q, fmt.Errorf("module %s is replaced, so go install of a version can't work", d.Path)
	}
	if h, ok := strings.CutPrefix(d.Sum, "h1:"); ok { // the hash of go.sum: of the list of files of the module
		sum, err := base64.StdEncoding.DecodeString(h)
		if err != nil {
			return q, err
		}
		q.External = append(q.External, spdxReference{"OTHER", "go-module-h1", fmt.Sprintf("%x", sum)})
	}
	return q, nil
}
