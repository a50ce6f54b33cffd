package executions

import (
	"cmp"
	"slices"
)

// Event is something that an execution has told.
type Event struct {
	// Number counts the events of an execution, from 1.
	Number int64
	Name   string
	// Data must not be changed.
	Data []byte
}

// eventOverhead is what an event costs beside its data, in bytes: an execution that
// prints letter by letter is to be counted as what it takes.
const eventOverhead = 16

func (e Event) cost() int64 { return cost(len(e.Data)) }

func cost(bytes int) int64 { return int64(bytes) + eventOverhead }

// pieceBytes is how much data lies in one piece, unless one event alone has more.
const pieceBytes = 64 << 10

// log holds the events of one execution, the last ones if they are too many. It is guarded
// by the keeper.
//
// Events lie behind each other in pieces: who prints letter by letter makes millions, and
// one allocation for each would take several times what was printed.
type log struct {
	pieces []*piece
	// names are those of its events, which are few.
	names []string
	// next is the number that comes next.
	next int64
	// cost of the events together.
	cost int64
	// changed is closed when something is new.
	changed chan struct{}
}

// piece is a part of a log.
type piece struct {
	// first is the number of the first of its events, those that are forgotten included.
	first int64
	data  []byte
	marks []mark
	// dropped is how many of its events are forgotten.
	dropped int
}

// mark says where the data of an event ends, and which of the names it has.
type mark struct {
	end  uint32
	name uint8
}

// of returns the data of an event, by its place in the piece.
func (p *piece) of(i int) []byte {
	var begin uint32
	if i > 0 {
		begin = p.marks[i-1].end
	}
	end := p.marks[i].end
	return p.data[begin:end:end]
}

func newLog() log { return log{next: 1, changed: make(chan struct{})} }

// append adds an event and returns it, and what it costs.
func (l *log) append(name string, data []byte) (Event, int64) {
	named := slices.Index(l.names, name)
	if named < 0 {
		named = len(l.names)
		l.names = append(l.names, name)
	}
	p := l.pieceFor(len(data))
	p.data = append(p.data, data...)
	p.marks = append(p.marks, mark{end: uint32(len(p.data)), name: uint8(named)})
	e := Event{Number: l.next, Name: name, Data: p.of(len(p.marks) - 1)}
	l.next++
	l.cost += e.cost()
	l.tell()
	return e, e.cost()
}

// pieceFor returns the last piece, or a new one if so much more does not belong into it.
func (l *log) pieceFor(bytes int) *piece {
	var last *piece
	if len(l.pieces) > 0 {
		last = l.pieces[len(l.pieces)-1]
		if len(last.data)+bytes <= pieceBytes {
			return last
		}
	}
	p := &piece{first: l.next}
	if last != nil { // so much is told that it will be filled
		p.data = make([]byte, 0, max(bytes, pieceBytes))
	}
	l.pieces = append(l.pieces, p)
	return p
}

// tell wakes those who wait.
func (l *log) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// count is how many events are remembered.
func (l *log) count() int64 { return l.next - l.first() }

// drop forgets the oldest event and returns what it has cost, 0 if there is none.
func (l *log) drop() int64 {
	if len(l.pieces) == 0 {
		return 0
	}
	p := l.pieces[0]
	cost := cost(len(p.of(p.dropped)))
	p.dropped++
	if p.dropped == len(p.marks) {
		l.pieces[0] = nil // it shall not live as long as the array
		l.pieces = l.pieces[1:]
	}
	l.cost -= cost
	return cost
}

// clear forgets all events and returns what they have cost.
func (l *log) clear() int64 {
	cost := l.cost
	l.pieces, l.cost = nil, 0
	return cost
}

// restore has a log begin with an event that was told before.
func (l *log) restore(e Event) {
	l.next = e.Number
	l.append(e.Name, e.Data)
}

// first is the number of the first event that is kept, or of the one to come.
func (l *log) first() int64 {
	if len(l.pieces) == 0 {
		return l.next
	}
	return l.pieces[0].first + int64(l.pieces[0].dropped)
}

// after returns the events behind that number, up to about so many bytes but at least one
// if there is one, and how many there were before these which are not kept.
func (l *log) after(number, bytes int64) (events []Event, lost int64) {
	from := number + 1
	if first := l.first(); from < first {
		lost = first - from
		from = first
	}
	if from >= l.next {
		return nil, lost
	}
	at, found := slices.BinarySearchFunc(l.pieces, from, func(p *piece, number int64) int { return cmp.Compare(p.first, number) })
	if !found {
		at--
	}
	var sum int64
	for _, p := range l.pieces[at:] {
		for i := int(max(0, from-p.first)); i < len(p.marks); i++ {
			e := Event{Number: p.first + int64(i), Name: l.names[p.marks[i].name], Data: p.of(i)}
			if len(events) > 0 && sum+e.cost() > bytes {
				return events, lost
			}
			sum += e.cost()
			events = append(events, e)
		}
	}
	return events, lost
}
