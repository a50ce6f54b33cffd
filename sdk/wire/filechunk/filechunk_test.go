package filechunk_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// counted is a pool that knows how many of its buffers are in use.
type counted struct{ out int }

func (c *counted) Get(length int) *[]byte {
	c.out++
	buf := make([]byte, length)
	return &buf
}

func (c *counted) Put(*[]byte) { c.out-- }

// pieces puts data into buffers of the given size, that are large enough for gRPC
// to give them back to a pool.
func (c *counted) pieces(data []byte, size int) mem.BufferSlice {
	var all mem.BufferSlice
	for piece := range slices.Chunk(data, size) {
		buf := c.Get(max(size, 4<<10))
		*buf = (*buf)[:copy(*buf, piece)]
		all = append(all, mem.NewBuffer(buf, c))
	}
	return all
}

func TestAMessageIsWhatProtobufMakesOfIt(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	want, err := proto.Marshal(&providerv1.WriteFileRequest{Part: &providerv1.WriteFileRequest_Data{Data: data}})
	assert.NilError(t, err)
	pool := &counted{}
	sent, err := filechunk.Codec().Marshal(&filechunk.Message{Field: filechunk.FieldOfFile, Data: pool.pieces(data, 4000)})
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(sent.Materialize(), want))
	sent.Free()
	assert.Equal(t, pool.out, 0, "whoever sends gives away")
}

func TestDataIsFoundInAMessage(t *testing.T) {
	encode := func(m proto.Message) []byte {
		encoded, err := proto.Marshal(m)
		assert.NilError(t, err)
		return encoded
	}
	long := bytes.Repeat([]byte("0123456789"), 1000)
	data := func(data []byte) []byte { return encode(&providerv1.ReadArchiveResponse{Data: data}) }
	for name, test := range map[string]struct {
		message []byte
		want    []byte
	}{
		"alone":                       {data(long), long},
		"behind a field of no number": {append([]byte{0x78, 0x01}, data(long)...), long},
		"twice, of which one counts":  {append(data([]byte("first")), data(long)...), long},
		"not at all":                  {encode(&providerv1.WriteFileRequest{Part: &providerv1.WriteFileRequest_Data{Data: long}}), nil},
		"empty":                       {[]byte{0x0a, 0x00}, nil},
		"in an empty message":         {nil, nil},
	} {
		for _, size := range []int{1, 3, 5000, 20000} {
			t.Run(name, func(t *testing.T) {
				pool := &counted{}
				received := pool.pieces(test.message, size)
				m := filechunk.Message{Field: filechunk.FieldOfReadArchive}
				assert.NilError(t, filechunk.Codec().Unmarshal(received, &m))
				received.Free() // as gRPC does
				assert.Assert(t, bytes.Equal(m.Data.Materialize(), test.want))
				m.Data.Free()
				assert.Equal(t, pool.out, 0)
			})
		}
	}
	m := filechunk.Message{Field: filechunk.FieldOfReadArchive}
	assert.ErrorContains(t, filechunk.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer{0x0a, 0x05, 'x'}}, &m), "malformed")
}

func TestOtherMessagesAreEncodedAsEver(t *testing.T) {
	encoded, err := filechunk.Codec().Marshal(&providerv1.StatFileRequest{Path: "/x"})
	assert.NilError(t, err)
	var got providerv1.StatFileRequest
	assert.NilError(t, filechunk.Codec().Unmarshal(encoded, &got))
	assert.Equal(t, got.GetPath(), "/x")
	assert.Equal(t, filechunk.Codec().Name(), "proto")
}

// Whatever comes, protobuf and we find the same data or both find none.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{0x0a, 0x01, 'x'}, 1)
	f.Add([]byte{0x78, 0x01, 0x0a, 0x01, 'x'}, 2)
	f.Add([]byte("\xc0\xc0\xc0\xc00\x850"), 2) // a number that no field can have
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 3)
	f.Fuzz(func(t *testing.T, message []byte, size int) {
		var want providerv1.ReadArchiveResponse
		wantErr := proto.Unmarshal(message, &want)
		m := filechunk.Message{Field: filechunk.FieldOfReadArchive}
		err := filechunk.Codec().Unmarshal((&counted{}).pieces(message, min(max(size, 1), 1<<16)), &m)
		assert.Equal(t, err == nil, wantErr == nil, "%v; %v", err, wantErr)
		if err == nil {
			assert.Assert(t, bytes.Equal(m.Data.Materialize(), want.GetData()))
		}
	})
}

func TestAReaderEndsAsItsStreamDoes(t *testing.T) {
	broken := errors.New("the stream broke")
	for name, end := range map[string]error{"in order": io.EOF, "broken": broken} {
		t.Run(name, func(t *testing.T) {
			pool := &counted{}
			messages := []string{"one", "", "two", "three"}
			r := filechunk.NewReader(func() (mem.BufferSlice, error) {
				if len(messages) == 0 {
					return nil, end
				}
				next := messages[0]
				messages = messages[1:]
				return pool.pieces([]byte(next), 2), nil
			})
			p := make([]byte, 2)
			n, err := r.Read(p)
			assert.NilError(t, err)
			assert.Equal(t, string(p[:n]), "on")
			chunk, err := filechunk.Next(r, true)
			assert.NilError(t, err)
			assert.Equal(t, string(chunk.Materialize()), "e", "what is left of a message is passed on")
			chunk.Free()
			rest, err := io.ReadAll(r)
			assert.Equal(t, string(rest), "twothree")
			if end == io.EOF { //nolint:errorlint // io.Reader has it bare
				assert.NilError(t, err)
			} else {
				assert.ErrorIs(t, err, broken)
			}
			_, err = filechunk.Next(r, true)
			assert.ErrorIs(t, err, end)
			assert.Equal(t, pool.out, 0)
		})
	}
}

func TestAnyReaderGivesChunks(t *testing.T) {
	all := func(r io.Reader, whole bool) (sizes []int, text string, err error) {
		var b strings.Builder
		for {
			chunk, err := filechunk.Next(r, whole)
			if err != nil {
				return sizes, b.String(), err
			}
			sizes = append(sizes, chunk.Len())
			b.Write(chunk.Materialize())
			chunk.Free()
		}
	}
	long := strings.Repeat("x", filechunk.Size) + "yz"
	for name, test := range map[string]struct {
		reader io.Reader
		whole  bool
		sizes  []int
		text   string
	}{
		"whole ones, however it comes": {iotest.OneByteReader(strings.NewReader("abc")), true, []int{3}, "abc"},
		"or as it comes":               {iotest.OneByteReader(strings.NewReader("abc")), false, []int{1, 1, 1}, "abc"},
		"no larger than messages are":  {strings.NewReader(long), true, []int{filechunk.Size, 2}, long},
		"its end with the last bytes":  {iotest.DataErrReader(strings.NewReader("abc")), true, []int{3}, "abc"},
		"nothing":                      {strings.NewReader(""), true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sizes, text, err := all(test.reader, test.whole)
			assert.ErrorIs(t, err, io.EOF)
			assert.DeepEqual(t, sizes, test.sizes)
			assert.Assert(t, text == test.text)
		})
	}
	broken := errors.New("the reader broke")
	_, text, err := all(io.MultiReader(strings.NewReader("lost"), iotest.ErrReader(broken)), true)
	assert.Check(t, is.ErrorIs(err, broken), "content that broke off does not pass for its end")
	assert.Equal(t, text, "")
}
