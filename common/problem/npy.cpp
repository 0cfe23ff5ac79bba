#include "common/problem/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

static_assert(std::endian::native == std::endian::little, ".npy files are read and written as they lie in memory");

namespace problem {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t max_header_bytes = 65535;  // what version 1 can say; NumPy itself needs about 100
constexpr std::size_t max_rank = 32;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw InputError(path.string() + ": " + what);
}

struct Header {
  std::string descr;
  bool fortran_order;
  std::vector<std::int64_t> shape;
};

// Reads the one Python literal that a header is: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  HeaderParser(const std::filesystem::path& path, std::string_view text) : path_(path), rest_(text) {}

  Header parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
    expect("{");
    while (!accept("}")) {
      const std::string key = quoted();
      expect(":");
      if (key == "descr" && !descr) {
        descr = quoted();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fail("key '" + key + "' is unknown or comes twice");
      }
      if (!accept(",")) {
        expect("}");
        break;
      }
    }
    skip_blanks();
    if (!rest_.empty()) fail("something follows the closing }");
    if (!descr || !fortran_order || !shape) fail("descr, fortran_order and shape must all be there");
    return {*descr, *fortran_order, *shape};
  }

 private:
  [[noreturn]] void fail(const std::string& what) { refuse(path_, "not a readable .npy header: " + what); }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n\t\r"), rest_.size())); }

  bool accept(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail("expected " + std::string(token));
  }

  std::string quoted() {
    const char quote = accept("'") ? '\'' : '"';
    if (quote == '"' && !accept("\"")) fail("expected a string (structured types are not supported)");
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail("a string does not end");
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool boolean() {
    if (accept("True")) return true;
    expect("False");
    return false;
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> extents;
    expect("(");
    while (!accept(")")) {
      extents.push_back(extent());
      if (extents.size() > max_rank) fail("the shape has more than " + std::to_string(max_rank) + " dimensions");
      if (accept(",")) continue;
      expect(")");
      if (extents.size() == 1) fail("a shape of one dimension is written (n,)");
      break;
    }
    return extents;
  }

  std::int64_t extent() {
    skip_blanks();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) fail("a dimension is beyond 64 bits");
    if (error != std::errc()) fail("the shape must be whole numbers");
    if (value < 1) fail("dimension " + std::to_string(value) + " in the shape; every one must be 1 or more");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  const std::filesystem::path& path_;
  std::string_view rest_;
};

// A file of known size, read from front to back.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path) {
    if (!std::filesystem::exists(path)) refuse(path, "no such file");
    if (!std::filesystem::is_regular_file(path)) refuse(path, "not a file");
    left_ = std::filesystem::file_size(path);
    file_.open(path, std::ios::binary);
    if (!file_) refuse(path, "cannot be opened for reading");
  }

  void read(void* to, std::size_t bytes, const char* what) {
    if (bytes > left_) refuse(path_, std::string("truncated: it ends within the ") + what);
    if (!file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) refuse(path_, "cannot be read");
    left_ -= bytes;
  }

  std::uint64_t left() const { return left_; }

 private:
  const std::filesystem::path& path_;
  std::ifstream file_;
  std::uint64_t left_ = 0;
};

Header read_header(Reader& reader, const std::filesystem::path& path) {
  char start[8];
  reader.read(start, sizeof start, "first 8 bytes");
  if (!std::string_view(start, sizeof start).starts_with(magic)) refuse(path, "not a .npy file (its magic string is missing)");
  const int version = static_cast<unsigned char>(start[6]);
  if (version < 1 || version > 3 || start[7] != 0) {
    refuse(path, ".npy version " + std::to_string(version) + " is unknown; 1.0, 2.0 and 3.0 are read");
  }
  std::uint32_t length = 0;
  reader.read(&length, version == 1 ? 2 : 4, "header length");
  if (length > max_header_bytes) refuse(path, "a header of " + std::to_string(length) + " bytes; no array needs that");
  std::string header(length, ' ');
  reader.read(header.data(), length, "header");
  Header parsed = HeaderParser(path, header).parse();
  if (parsed.fortran_order) refuse(path, "Fortran order; C order is needed (numpy.ascontiguousarray)");
  return parsed;
}

Dtype stored_dtype(const Header& header, const std::filesystem::path& path) {
  if (header.descr == "<f4") return Dtype::fp32;
  if (header.descr == "<f2") return Dtype::fp16;
  refuse(path, "elements of type '" + header.descr + "'; little-endian float16 ('<f2') or float32 ('<f4') is needed");
}

std::int64_t checked_count(const Header& header, std::size_t element_bytes, std::uint64_t available,
                           const std::filesystem::path& path) {
  std::uint64_t count = 1;
  for (const std::int64_t extent : header.shape) {
    if (count > (std::numeric_limits<std::int64_t>::max() / element_bytes) / static_cast<std::uint64_t>(extent)) {
      refuse(path, "shape " + to_string(header.shape) + " overflows");
    }
    count *= static_cast<std::uint64_t>(extent);
  }
  const std::uint64_t needed = count * element_bytes;
  if (needed != available) {
    refuse(path, std::string(needed > available ? "truncated" : "trailing bytes") + ": shape " + to_string(header.shape) +
                     " takes " + std::to_string(needed) + " bytes, the file has " + std::to_string(available));
  }
  return static_cast<std::int64_t>(count);
}

std::string python_tuple(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += std::to_string(extent) + ", ";
  if (shape.size() > 1) text.resize(text.size() - 2);
  if (shape.size() == 1) text.pop_back();  // (3,)
  return "(" + text + ")";
}

void write(const std::filesystem::path& path, const char* descr, const std::vector<std::int64_t>& shape,
           const std::vector<char>& elements) {
  std::string header =
      std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': " + python_tuple(shape) + ", }";
  const std::size_t before = magic.size() + 4;                     // magic, version, header length
  header.append(63 - (before + header.size()) % 64, ' ') += '\n';  // the data starts at a multiple of 64
  const auto length = static_cast<std::uint16_t>(header.size());

  std::ofstream file(path, std::ios::binary);
  file.write(magic.data(), magic.size()).write("\x01\x00", 2).write(reinterpret_cast<const char*>(&length), 2) << header;
  file.write(elements.data(), static_cast<std::streamsize>(elements.size()));
  if (!file.flush()) refuse(path, "cannot be written");
}

}  // namespace

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

NpyArray read_npy(const std::filesystem::path& path) {
  Reader reader(path);
  const Header header = read_header(reader, path);
  const Dtype stored = stored_dtype(header, path);
  const std::int64_t count = checked_count(header, bytes(stored), reader.left(), path);

  std::vector<char> elements(static_cast<std::size_t>(count) * bytes(stored));
  reader.read(elements.data(), elements.size(), "data");
  NpyArray array{Tensor(header.shape), stored};
  decode(stored, elements.data(), static_cast<std::size_t>(count), array.tensor.values.data());
  return array;
}

std::vector<std::int32_t> read_npy_integers(const std::filesystem::path& path) {
  Integers array = read_npy_integer_array(path);
  if (array.shape.size() != 1) refuse(path, "shape " + to_string(array.shape) + "; one dimension is needed");
  return std::move(array.values);
}

NpyFlags read_npy_flags(const std::filesystem::path& path) {
  Reader reader(path);
  const Header header = read_header(reader, path);
  if (header.descr != "|b1" && header.descr != "|u1") {
    refuse(path, "elements of type '" + header.descr + "'; bool ('|b1') or uint8 ('|u1') is needed");
  }
  NpyFlags flags{header.shape, {}};
  flags.values.resize(static_cast<std::size_t>(checked_count(header, 1, reader.left(), path)));
  reader.read(reinterpret_cast<char*>(flags.values.data()), flags.values.size(), "data");
  const auto odd = std::find_if(flags.values.begin(), flags.values.end(), [](std::uint8_t flag) { return flag > 1; });
  if (odd != flags.values.end()) {
    refuse(path,
           "element " + std::to_string(odd - flags.values.begin()) + " is " + std::to_string(*odd) + "; a flag is 0 or 1");
  }
  return flags;
}

Integers read_npy_integer_array(const std::filesystem::path& path, Element element) {
  Reader reader(path);
  const Header header = read_header(reader, path);
  const bool narrow = element == Element::int8();
  if (narrow ? header.descr != "|i1" : header.descr != "<i4" && header.descr != "<i8") {
    refuse(path, "elements of type '" + header.descr + "'; " +
                     (narrow ? "int8 ('|i1')" : "little-endian int32 ('<i4') or int64 ('<i8')") + " is needed");
  }
  const bool wide = header.descr == "<i8";
  const std::size_t element_bytes = wide ? sizeof(std::int64_t) : element.bytes();
  const std::int64_t count = checked_count(header, element_bytes, reader.left(), path);

  std::vector<char> elements(static_cast<std::size_t>(count) * element_bytes);
  reader.read(elements.data(), elements.size(), "data");
  Integers integers(header.shape);
  if (!wide) {
    decode(element, elements.data(), integers.values.size(), integers.values.data());
    return integers;
  }
  for (std::size_t n = 0; n < integers.values.size(); ++n) {
    std::int64_t number = 0;
    std::memcpy(&number, &elements[n * element_bytes], element_bytes);
    integers.values[n] = static_cast<std::int32_t>(number);
    if (number != integers.values[n]) {
      refuse(path, "number " + std::to_string(n) + " is " + std::to_string(number) + ", beyond 32 bits");
    }
  }
  return integers;
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor, Dtype stored) {
  if (stored != Dtype::fp16) stored = Dtype::fp32;
  std::vector<char> elements(tensor.values.size() * bytes(stored));
  encode(stored, tensor.values.data(), tensor.values.size(), elements.data());
  write(path, stored == Dtype::fp16 ? "<f2" : "<f4", tensor.shape, elements);
}

void write_npy(const std::filesystem::path& path, const Integers& integers, Element stored) {
  std::vector<char> elements(integers.values.size() * stored.bytes());
  encode(stored, integers.values.data(), integers.values.size(), elements.data());
  write(path, stored == Element::int8() ? "|i1" : "<i4", integers.shape, elements);
}

}  // namespace problem
