package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// searchTime is after which a search answers what it has found.
	searchTime = 5 * time.Second
	// answerTime is what is left of the time of a request for its answer.
	answerTime = time.Second
	// maxFound is how many bytes of lines an answer has, apart from its last line.
	maxFound = 4 << 20
	// maxShown is the longest line that is found, in bytes.
	maxShown = 8 << 20
	// lookEvery is after how many lines a search looks at the time.
	lookEvery = 256
)

// Query selects lines; what is empty selects all.
type Query struct {
	// Tenant, Operation (also one that an effect covers), Outcome, Instance (the broker's
	// name for it, or the provider's), RequestID and Provider as a line has them.
	Tenant, Operation, Outcome, Instance, RequestID, Provider string
	// Text is a part of any text in a line, in whatever case. Hashes are only found whole.
	Text string
	// Since and Until are the times of the first and the last line.
	Since, Until time.Time
	// Limit of lines; it must be positive.
	Limit int
	// Before is Next of the answer before.
	Before string
}

// Found is what a search has found.
type Found struct {
	// Lines, the newest first, each a JSON object as it stands in the log.
	Lines []json.RawMessage
	// Next, if not empty, is what to give as Before to go on: there is more, or the time
	// was over.
	Next string
}

// position is the beginning of a line in a file, in its text as it is without compression.
type position struct {
	first  uint64 // of the file
	offset int64
}

// endOf is behind all lines of a file.
func endOf(s Segment) position { return position{s.First, math.MaxInt64} }

func (p position) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d", p.first, p.offset))
}

// parsePosition reads what String makes. No position is too strange: of one that is none
// of a line, nothing is found in its place.
func parsePosition(text string) (p position, err error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		_, err = fmt.Sscanf(string(decoded), "%d.%d", &p.first, &p.offset)
	}
	if err != nil || p.offset < 0 || p.String() != text {
		return p, sdk.FieldErrorf(sdk.CodeInvalidRequest, "before", "must be next of an earlier answer, as it came")
	}
	return p, nil
}

// Search looks for lines, the newest first. It reads files in pieces, and answers what it
// has found after some seconds. The error is SB008 when others search, SB010 for a Before
// that is none, that of ctx, or one of reading.
func (a *Archive) Search(ctx context.Context, q Query) (Found, error) {
	before := position{math.MaxUint64, 0}
	if q.Before != "" {
		var err error
		if before, err = parsePosition(q.Before); err != nil {
			return Found{}, err
		}
	}
	done, err := a.beginSearch()
	if err != nil {
		return Found{}, err
	}
	defer done()
	segments, err := Segments(a.log.Dir())
	if err != nil {
		return Found{}, fmt.Errorf("list the audit log: %w", err)
	}
	s := &search{matcher: newMatcher(q), limit: q.Limit, until: within(ctx, a.searchTime)}
	for _, segment := range slices.Backward(segments) {
		from := endOf(segment)
		if segment.First > before.first || s.beside(segment, q) {
			continue
		}
		if segment.First == before.first {
			from = before
		}
		if s.full() || s.looked > 0 && s.over() { // each search comes further than the one before
			s.next = from
			break
		}
		err := s.file(ctx, segment, from)
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // one that was just removed for its age has nothing to say
			return Found{}, fmt.Errorf("search the audit log: %w", err)
		}
	}
	return s.found(), nil
}

// within is when a time is over, and earlier where the caller has less: what was found is
// to be answered before that.
func within(ctx context.Context, patience time.Duration) time.Time {
	until := time.Now().Add(patience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-answerTime).Before(until) {
		return deadline.Add(-answerTime)
	}
	return until
}

// errEnough ends a search before its end.
var errEnough = errors.New("that is enough")

// match is a line that was found, and where.
type match struct {
	text json.RawMessage
	at   position
}

// search is one that goes on.
type search struct {
	matcher
	limit   int
	until   time.Time
	matches []match
	bytes   int
	looked  int
	next    position // where to go on; the zero position for nowhere
}

// beside says that no line of a file can be within the times: the lines of a file are of
// one day.
func (s *search) beside(segment Segment, q Query) bool {
	return !q.Since.IsZero() && segment.Day < dayOf(q.Since) || !q.Until.IsZero() && segment.Day > dayOf(q.Until)
}

// full says that nothing more can be in the answer. One line more than its limit is looked
// for, so that it is known whether there is one.
func (s *search) full() bool { return len(s.matches) > s.limit || s.bytes > maxFound }

func (s *search) over() bool { return time.Now().After(s.until) }

func (s *search) found() Found {
	if len(s.matches) > s.limit {
		s.matches = s.matches[:s.limit]
		s.next = s.matches[s.limit-1].at
	}
	f := Found{Lines: []json.RawMessage{}}
	for _, m := range s.matches {
		f.Lines = append(f.Lines, m.text)
	}
	if s.next != (position{}) {
		f.Next = s.next.String()
	}
	return f
}

// file searches one file before a position. With errEnough the search is over.
func (s *search) file(ctx context.Context, segment Segment, from position) error {
	if !segment.Compressed {
		file, err := os.Open(segment.Path)
		if err == nil {
			defer file.Close()
			return s.backwards(ctx, file, segment, from.offset)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return s.forwards(ctx, segment, from.offset)
}

// backwards searches a file as it is, from its end on.
func (s *search) backwards(ctx context.Context, file *os.File, segment Segment, end int64) error {
	lines, err := newTail(file, end)
	if err != nil {
		return err
	}
	for {
		text, at, err := lines.previous()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		here := position{segment.First, at}
		if s.selects(text) {
			s.matches = append(s.matches, match{slices.Clone(text), here})
			s.bytes += len(text)
		}
		s.looked++
		look := s.looked%lookEvery == 0 || len(text) > tailPiece
		if look && ctx.Err() != nil {
			return ctx.Err()
		}
		if s.full() || look && s.over() {
			s.next = here
			return errEnough
		}
	}
}

// forwards searches a compressed file, which can only be read from its beginning: it keeps
// the last lines that match.
func (s *search) forwards(ctx context.Context, segment Segment, end int64) error {
	r, err := OpenReader(segment.Path, segment.Compressed)
	if err != nil {
		return err
	}
	defer r.Close()
	var kept []match
	size, dropped := 0, false
	for r.Offset() < end {
		at := position{segment.First, r.Offset()}
		text, err := r.Next()
		if err != nil { // its end, or what the check of the chain says is wrong with it
			break
		}
		if s.looked++; s.looked%lookEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !s.selects(text) {
			continue
		}
		kept, size = append(kept, match{slices.Clone(text), at}), size+len(text)
		for len(kept) > 1 && (len(s.matches)+len(kept) > s.limit+1 || s.bytes+size-len(kept[0].text) > maxFound) {
			size -= len(kept[0].text)
			kept, dropped = kept[1:], true
		}
	}
	slices.Reverse(kept)
	s.matches, s.bytes = append(s.matches, kept...), s.bytes+size
	if dropped || s.full() {
		s.next = kept[len(kept)-1].at
		return errEnough
	}
	return nil
}

// tail reads the lines of a file from its end on, in pieces.
type tail struct {
	file *os.File
	// rest is the text from start on that was read and not returned yet, without the
	// newline at its end.
	rest  []byte
	start int64
	done  bool
}

const tailPiece = 64 << 10

// newTail begins before an offset. A line that does not end there yet is left out.
func newTail(file *os.File, end int64) (*tail, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	t := &tail{file: file, start: min(end, info.Size())}
	t.done = t.start == 0
	if t.done {
		return t, nil
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, t.start-1); err != nil {
		return nil, err
	}
	if last[0] == '\n' {
		t.start--
		return t, nil
	}
	_, _, err = t.line()
	if errors.Is(err, io.EOF) || errors.Is(err, errTooLong) {
		return t, nil
	}
	return t, err
}

// previous returns the line before, valid until the next call, and where it begins. A
// line above maxShown is left out. The error is io.EOF at the beginning of the file.
func (t *tail) previous() ([]byte, int64, error) {
	for {
		text, at, err := t.line()
		if !errors.Is(err, errTooLong) {
			return text, at, err
		}
	}
}

var errTooLong = errors.New("the line is too long")

// line is previous, which says errTooLong for a line above maxShown.
func (t *tail) line() ([]byte, int64, error) {
	tooLong := false
	for {
		if i := bytes.LastIndexByte(t.rest, '\n'); i >= 0 {
			text, at := t.rest[i+1:], t.start+int64(i)+1
			t.rest = t.rest[:i]
			if tooLong {
				return nil, 0, errTooLong
			}
			return text, at, nil
		}
		if t.start == 0 {
			if t.done || tooLong {
				t.done = true
				return nil, 0, io.EOF
			}
			t.done = true
			return t.rest, 0, nil
		}
		if len(t.rest) > maxShown {
			tooLong, t.rest = true, nil
		}
		n := min(int64(max(tailPiece, len(t.rest))), t.start)
		text := make([]byte, n, int(n)+len(t.rest))
		if _, err := t.file.ReadAt(text, t.start-n); err != nil {
			return nil, 0, err
		}
		t.rest, t.start = append(text, t.rest...), t.start-n
	}
}

// matcher says which lines a query selects.
type matcher struct {
	query Query
	// parts are what the text of a line must have, as the log writes it, for the line to be
	// worth reading.
	parts [][]byte
	text  string // lower case
}

func newMatcher(q Query) matcher {
	m := matcher{query: q, text: strings.ToLower(q.Text)}
	for _, value := range []string{q.Tenant, q.Operation, q.Outcome, q.Instance, q.RequestID, q.Provider} {
		if quoted, err := json.Marshal(value); err == nil && value != "" {
			m.parts = append(m.parts, quoted)
		}
	}
	return m
}

// selects reports whether a line is selected. What is no JSON object, because somebody
// has changed it, is not.
func (m *matcher) selects(text []byte) bool {
	for _, part := range m.parts {
		if !bytes.Contains(text, part) {
			return false
		}
	}
	if len(text) > maxShown || len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || !json.Valid(text) {
		return false
	}
	return m.ofFields(text) && m.ofText(text)
}

func (m *matcher) ofFields(text []byte) bool {
	q := m.query
	if len(m.parts) == 0 && q.Since.IsZero() && q.Until.IsZero() {
		return true
	}
	var line struct {
		Timestamp        time.Time `json:"timestamp"`
		Operation        string    `json:"operation"`
		Covers           []string  `json:"covers"`
		Status           string    `json:"status"`
		Tenant           string    `json:"tenant_id"`
		Instance         string    `json:"instance_id"`
		ProviderInstance string    `json:"provider_instance"`
		RequestID        string    `json:"request_id"`
		Provider         string    `json:"provider"`
	}
	if json.Unmarshal(text, &line) != nil {
		return false
	}
	return isOr(q.Tenant, line.Tenant) && isOr(q.Operation, append(line.Covers, line.Operation)...) && isOr(q.Outcome, line.Status) &&
		isOr(q.Instance, line.Instance, line.ProviderInstance) && isOr(q.RequestID, line.RequestID) && isOr(q.Provider, line.Provider) &&
		(q.Since.IsZero() || !line.Timestamp.Before(q.Since)) && (q.Until.IsZero() || !line.Timestamp.After(q.Until))
}

// isOr reports whether nothing is wanted, or one of the values.
func isOr(wanted string, values ...string) bool {
	return wanted == "" || slices.Contains(values, wanted)
}

func (m *matcher) ofText(text []byte) bool {
	if m.text == "" {
		return true
	}
	var line map[string]any
	if json.Unmarshal(text, &line) != nil {
		return false
	}
	for name, value := range line {
		if sum, ok := value.(string); ok && (name == "hash" || name == "prev") {
			if sum == m.text {
				return true
			}
			continue
		}
		if name != "usage" && m.in(value) {
			return true
		}
	}
	return false
}

// in reports whether the text is in a value.
func (m *matcher) in(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(strings.ToLower(v), m.text)
	case []any:
		return slices.ContainsFunc(v, m.in)
	case map[string]any:
		for _, inner := range v {
			if m.in(inner) {
				return true
			}
		}
	}
	return false
}
