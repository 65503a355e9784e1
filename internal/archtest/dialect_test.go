//go:build !race

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// phrase is wording that a reader has to read twice, and what to write instead.
type phrase struct {
	pattern string
	write   string
}

// phrases are looked for in documents, outside of code, in one sentence after the
// other. A match is a reason to write the sentence again, not to look for a synonym:
// the thing that acts is the subject, and has a name.
var phrases = []phrase{
	{`(?:^|[.:;(|] |, |\b(?:so|and|to|but|from|by|for|with|than|of) )[Ww]ho (?:has|is|was|shows?|opens?|takes?|reads?|moves?|polls?|asks?|sends?|runs?|gets?|comes?|calls?|changes?|wants?|searches|does|did|can|may|must|writes?|speaks?)\b`,
		`name the one who acts: "a client that polls", "operators who run Isobar"`},
	{`\b[Ww]hoever\b`, `name the one who acts: "every client that", "an attacker that"`},
	{`\b[Ww]hat (?:is|was|are|were) (?:left|held|wanted|needed|published|lost|below|seen|sent|said|known|too|decided|listed|gone|removed|forbidden|measured|given|missing|there|here|planned)\b`,
		`name the thing: "the remaining capacity", "held removals", "published weights"`},
	{`\bwhat (?:comes|came|goes|lies|stays|stood|stands|lands|landed|follows|remains|clients? (?:is|are|was|were)) (?:in|to|from|of|with|there|here|behind|before|beneath|told|sent)\b`,
		`name the thing: "the requests that arrive"`},
	{`\b(?:by|of|to|from|for|with|than|on|at|about|beyond) what (?:is|was|are|were|has|had|came|comes|goes)\b`,
		`name the thing after the preposition: "from the reported rates"`},
	{`\b(?:reason|error|address|name|text|value|cause|digest|revision|it|that|which)s? stands? (?:in|there|beneath|under|behind|beside)\b`, `"the log has the reason", "the table shows the value"`},
	{`\b(?:[Mm]end|mends|mended|mending)\b`, `"fix"`},
	{`\bheed(?:s|ed|ing)?\b`, `"use", "follow", "obey"`},
	{`\banew\b`, `"again", or say what restarts`},
	{`\b(?:is|are|was|were) (?:not |no longer )?believed\b|\bbelieves? (?:a|an|the|that|it|checkers)\b`, `"Isobar accepts", "counts", "holds"`},
	{`\b(?:is|are|was|were) told (?:of|about|how|that|what|when|which|by|its|their|apart)\b`, `say who sends what: "Isobar sends the client", "distinguishes"`},
	{`\b(?:tells?|told|speaks?|says?) of\b`, `"shows", "reports", "names"`},
	{`\b(?:all|everything|things?) (?:is |are )?in order\b`, `"without problems"`},
	{`\b(?:lets?|letting) (?:it |them |that )?go\b`, `"frees", "lifts", "stops using"`},
	{`\bgiv(?:e|es|en|ing) way\b`, `"decreases", "yields to"`},
	{`\b(?:take|takes|took|taken) (?:it|that|this|them|a pause) back\b|\b(?:is|are|was|were) taken back\b`, `"reverts", "removes", "ends"`},
	{`\b(?:takes?|took|taken) away\b`, `"removes"`},
	{`\bshuts? out\b`, `"revokes", "refuses"`},
	{`\b(?:[Ss]omebody|[Ee]verybody|[Aa]nybody)\b`, `name them: "a client", "all policies", "an operator"`},
	{`\b(?:swings?|swung|swinging)\b`, `"varies" for demand, "oscillates" for shares`},
	{`\bladder\b|\b(?:a|the|this|each|every) rung\b|\brungs\b`, `"degradation level"`},
	{`\b(?:can't|cannot) be true\b`, `"implausible"`},
	{`\bthere is no telling\b|\b(?:is|are) no telling\b`, `"inconclusive", "unknown"`},
	{`\bthe way and the waiting\b`, `"network latency plus queueing delay"`},
	{`\b(?:on|in) (?:its|their) way\b`, `"in transit", "in progress"`},
	{`\bat the (?:most|least)\b`, `"at most", "at least"`},
	{`\bin the place of\b`, `"instead of"`},
	{`\b(?:for|after) so (?:long|many)\b`, `give the time: "for this long"`},
	{`\ball the same\b`, `"nevertheless", "still"`},
	{`\b(?:the|that|those|ones?) of before\b`, `"the previous one"`},
	{`\b(?:has|have|had|find|finds|make|makes|no|enough|more) room\b`, `"headroom", "quota", "memory"`},
	{`\bto and fro\b`, `"oscillates"`},
	{`\bfalls? silent\b|\b(?:is|are) silent\b`, `"stops reporting"`},
	{`\bgo(?:es)? by (?:what|it|them|that|the)\b`, `"uses", "follows"`},
	{`\bspeaks? (?:plaintext|TLS|with)\b`, `"uses plaintext", "connects to"`},
	{`\bby (?:way|want) of\b|\bfor want of\b`, `"through", "because ... is missing"`},
	{`\bbe it\b`, `"even if"`},
	{`\bever(?:y|)thing that it (?:was|is) (?:told|given)\b`, `"all inputs"`},
}

// retired are words that documents no longer use, but texts of the program still do.
var retired = []phrase{
	{`\b[Nn]obody\b`, `name it: "no replica", "no client"`},
	{`\bvouch(?:es|ed|ing)?\b`, `"confirms"`},
	{`\bas such\b`, `repeat the noun`},
	{`\bsettles?\b|\bsettled (?:after|in|within)\b|\b(?:have|has|is|are) settled\b`, `"converges"`},
	{`\b(?:go|goes|going|went) on (?:holding|sending|serving|with|to)\b`, `"continues"`},
	{`\bhears? of\b|\bheard of\b`, `"gets", "knows"`},
	{`\b[Ww]hat (?:is|was|are|were) (?:in progress|usual|what|issued|refused|believed|in use|in force|proven|newest)\b`,
		`name the thing: "requests in progress", "the newest views"`},
	{`\b(?:compares?|compared|takes? it|counts?) (?:with|from|up to) what\b`, `name the thing after the preposition`},
	{`, too(?:[.:;,)]| \||$)`, `"also", before the verb or the object`},
	{`\bover (?:a |the )?restarts?\b`, `"across restarts"`},
	{`\bsome (?:more )?(?:hundred|thousand|percent|seconds|minutes|hours|days|milliseconds|[KMG]iB)\b`, `"a few"`},
	{`\bwithout you\b`, `"by itself", "automatically"`},
	{`\b(?:can|could|will|must) therefore not\b`, `begin with "Therefore"`},
	{`\b(?:of|from|into|over|than|with|multiplies) what\b`, `name the thing: "of the declared values", "over the localities that Isobar assigns"`},
	{`, also (?:if|where|when)\b`, `"even if"`},
	{`(?:^|[.:;(|] )Where (?:it|that|this|they|nothing|no|all|none)\b`, `"If"`},
	{`\bof before\b`, `"from before the restart", "earlier"`},
	{`\bwould not do\b`, `"would not suffice", "would not work"`},
	{`\bone of both\b`, `"one of the two"`},
}

// inMessages are looked for in texts of the code only: comments still have them.
var inMessages = []phrase{
	{`\b(?:goes|go|going|went) on\b`, `"continues"`},
	{`\bstands? (?:there|twice|under|at)\b`, `"is listed", "is already at"`},
	{`\bspeaks? no\b`, `"does not use"`},
	{`\bsays? nothing of\b`, `"does not contain"`},
	{`\bgave up on\b`, `"can't read"`},
}

// outsideTests are looked for in comments of all code but tests.
var outsideTests = []phrase{
	{`\b(?:tells?|told|telling) of\b`, `"returns", "shows", "gets"`},
	{`\b(?:[Ss]omebody|[Ee]verybody|[Aa]nybody|[Ww]hoever)\b`, `name them: "a client", "any replica"`},
	{`\b(?:has|have|had|find|finds|make|makes|no|enough|more|is) room\b`, `"headroom", "quota", "memory"`},
	{`\btakes? note\b`, `"records", "notes"`},
}

// plainPackages are packages whose comments are also free of the phrases below.
var plainPackages = []string{
	"internal/admission", "internal/capacity", "internal/control", "internal/health", "internal/load", "internal/lrs", "internal/replica",
}

// inPlainPackages are looked for in comments of plainPackages, outside of tests.
var inPlainPackages = []phrase{
	{`\btells? whether\b`, `"reports whether"`},
	{`\b[Ww]hat (?:is|was|are|were|came|comes|lands|landed|counts|follows)\b`, `name the thing: "landed requests", "the newest plan"`},
	{`\b(?:by|of|from|for|with|than|beyond|up to|from) what\b`, `name the thing after the preposition`},
	{`\blets? go of\b|\bis let go\b`, `"frees", "releases"`},
}

// worst are the phrases that are looked for in comments of code, too.
var worst = []phrase{
	{`\b(?:heed(?:s|ed|ing)?)\b`, `"use", "follow"`},
	{`\bcan't be true\b`, `"implausible"`},
	{`\bto and fro\b`, `"oscillates"`},
	{`\bshuts? out\b`, `"refuses"`},
	{`\b(?:by way|for want) of\b`, `"through", "because ... is missing"`},
	{`\b(?:[Mm]end|mends|mended|mending)\b`, `"fix"`},
	{`\banew\b`, `"again", or say what restarts`},
	{`\bgiv(?:e|es|en|ing) way\b`, `"decreases", "yields to"`},
	{`\b(?:takes?|took|taken) away\b`, `"removes"`},
	{`\bladder\b|\b(?:a|the|this|each|every) rung\b|\brungs\b`, `"degradation level"`},
	{`\bthere is no telling\b|\b(?:is|are) no telling\b`, `"inconclusive", "unknown"`},
	{`\bthe way and the waiting\b`, `"network latency plus queueing delay"`},
	{`\bat the (?:most|least)\b`, `"at most", "at least"`},
	{`\bin the place of\b`, `"instead of"`},
	{`\ball the same\b`, `"nevertheless", "still"`},
	{`\b(?:the|that|those|ones?) of before\b`, `"the previous one"`},
}

// allowed are lines that contain a phrase for a reason. Keep it short.
var allowed = map[string][]string{ // file → parts of lines
}

var (
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\([^)\n]*\)`)
	quoted     = regexp.MustCompile(`"[^"\n]{1,200}"`)
)

// prose returns a document without code, link targets and quotations, with lines
// as they were.
func prose(doc string) string {
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	doc = fenced.ReplaceAllStringFunc(doc, blank)
	lines := strings.Split(doc, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "    ") {
			lines[i] = ""
		}
	}
	doc = strings.Join(lines, "\n")
	doc = inlineCode.ReplaceAllString(doc, "x")
	doc = linkTarget.ReplaceAllString(doc, "]")
	return quoted.ReplaceAllString(doc, "x")
}

// dialectIn returns a line for each phrase found in a text: its line number,
// the words, and what to write instead.
func dialectIn(text string, list []phrase) []finding {
	var out []finding
	flat := strings.ReplaceAll(text, "\n", " ") // sentences go on in the next line
	for _, p := range list {
		for _, at := range compiled(p.pattern).FindAllStringIndex(flat, -1) {
			out = append(out, finding{line: 1 + strings.Count(text[:at[0]], "\n"), words: flat[at[0]:at[1]], write: p.write})
		}
	}
	slices.SortFunc(out, func(a, b finding) int { return a.line - b.line })
	return out
}

// patterns are those that were compiled, by their text.
var patterns = map[string]*regexp.Regexp{}

func compiled(pattern string) *regexp.Regexp {
	if patterns[pattern] == nil {
		patterns[pattern] = regexp.MustCompile(pattern)
	}
	return patterns[pattern]
}

type finding struct {
	line         int
	words, write string
}

// TestDocumentsArePlainEnglish: documents name the thing that acts, use present
// tense and the field's terms.
func TestDocumentsArePlainEnglish(t *testing.T) {
	root := moduleRoot(t)
	for _, path := range proseFiles(t, root) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, text := relative(t, root, path), string(data)
		list := slices.Concat(phrases, retired)
		if name == "CHANGELOG.md" {
			text, list = newestSection(text), phrases
		}
		lines := strings.Split(text, "\n")
		for _, f := range dialectIn(prose(text), list) {
			if !slices.ContainsFunc(allowed[name], func(part string) bool { return strings.Contains(lines[f.line-1], part) }) {
				t.Errorf("%s:%d: %q: write %s", name, f.line, f.words, f.write)
			}
		}
	}
}

// TestCommentsArePlainEnglish looks for the worst phrases in comments.
func TestCommentsArePlainEnglish(t *testing.T) {
	root := moduleRoot(t)
	for _, path := range filesWith(t, root, ".go") {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		name, list := relative(t, root, path), worst
		if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".pb.go") {
			list = slices.Concat(list, outsideTests)
			if slices.ContainsFunc(plainPackages, func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) {
				list = slices.Concat(list, inPlainPackages)
			}
		}
		for _, c := range file.Comments {
			for _, f := range dialectIn(inlineCode.ReplaceAllString(c.Text(), "x"), list) {
				t.Errorf("%s:%d: %q: write %s", name, set.Position(c.Pos()).Line+f.line-1, f.words, f.write)
			}
		}
	}
}

// TestDialectIsFound: each pattern compiles and finds what it is for; plain
// sentences pass.
func TestDialectIsFound(t *testing.T) {
	for _, text := range []string{
		"So who has lost a key is shut out by taking the identity from the file.",
		"But whoever opens many streams is designated like any other checker.",
		"What is held stays in force.",
		"The reason stands in the server's log.",
		"Mend the client.",
		"Capacities are often wrong, and it heeds them.",
		"A mass flip that is not believed.",
		"Clients are told of changes.",
		"`isobar status` says that all is in order.",
		"Somebody paused services.",
		"Demand swings faster than decisions follow.",
		"What the rungs do is told elsewhere.",
		"Entries that can't be true are left out.",
		"There is no telling below a tenth of the limit.",
		"Requests go to where the way and the waiting together cost least.",
		"It goes to localities that have room.",
		"Endpoints in force are those of before.",
		"No link of its metadata goes\nby what the server says.",
		"Reports would be lost while nobody leads.",
		"Requests in progress vouch for the load.",
		"Shares settled after 220 s.",
		"Isobar goes on holding removals.",
		"It takes it from what ended and what is in progress.",
		"The log has the reason, too.",
		"Endpoints stay, even over restarts.",
		"Weights are held for some seconds.",
		"Clients retry without you.",
		"A factor multiplies what is declared.",
		"The locality keeps a share, also if it is full.",
		"Where that does not suffice, steps double.",
		"The load reports of before it count.",
		"The number of the last write would not do.",
		"From other machines it needs one of both.",
	} {
		if len(dialectIn(prose(text), slices.Concat(phrases, retired))) == 0 {
			t.Errorf("nothing found in %q", text)
		}
	}
	for _, text := range []string{
		"To revoke a lost key, remove its identity from the file.",
		"Isobar holds a mass failure until an operator accepts it.",
		"The log has the reason: `what is left could not carry it`.",
		"This page is for operators who run Isobar.",
	} {
		if found := dialectIn(prose(text), slices.Concat(phrases, retired)); len(found) > 0 {
			t.Errorf("%q: found %q", text, found[0].words)
		}
	}
}

// newestSection returns the first release's section of a changelog.
func newestSection(text string) string {
	begin := strings.Index(text, "\n## ")
	if begin < 0 {
		return text
	}
	if end := strings.Index(text[begin+1:], "\n## "); end >= 0 {
		return text[:begin+1+end]
	}
	return text
}

// proseFiles lists the documents whose language is checked.
func proseFiles(t *testing.T, root string) []string {
	t.Helper()
	out := []string{}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		out = append(out, filepath.Join(root, name))
	}
	return append(out, filesWith(t, filepath.Join(root, "docs"), ".md")...)
}

// filesWith lists the files with an extension below a directory.
func filesWith(t *testing.T, dir, ext string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != dir):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(path) == ext:
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// relative returns a path below the root of the module.
func relative(t *testing.T, root, path string) string {
	t.Helper()
	name, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(name)
}

// TestMessagesArePlainEnglish: help, errors, logs and other texts in the code name the
// thing that acts, as documents do. Literals of one word are names.
func TestMessagesArePlainEnglish(t *testing.T) {
	root := moduleRoot(t)
	for _, path := range filesWith(t, root, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || !strings.Contains(lit.Value, " ") {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range dialectIn(text, slices.Concat(phrases, inMessages)) {
				t.Errorf("%s:%d: %q: write %s", relative(t, root, path), set.Position(lit.Pos()).Line+f.line-1, f.words, f.write)
			}
			return true
		})
	}
}
