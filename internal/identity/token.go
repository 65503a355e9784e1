package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync/atomic"
)

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

// Valid tells whether what was presented is the token, in a time that does not
// depend on where they differ.
func (t *Token) Valid(presented string) bool {
	sum := sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(sum[:], t.current.Load()[:]) == 1
}
