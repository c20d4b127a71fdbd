#include "api/json/json_datum.h"

#include <cstring>
#include <limits>

#include "api/json/error_mapping.h"
#include "api/json/json_reader.h"

namespace tuft::api {
namespace {

using simdjson::dom::element;

template <typename T>
void append_bytes(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

bool append_int64(const element& array, std::string& bytes) {
  simdjson::dom::array items;
  if (array.get_array().get(items) != simdjson::SUCCESS) return false;
  bytes.reserve(bytes.size() + items.size() * sizeof(int64_t));
  for (const element item : items) {
    int64_t integer = 0;
    double real = 0;
    if (item.get_int64().get(integer) != simdjson::SUCCESS) {
      if (!item.is_number() || item.get_double().get(real) != simdjson::SUCCESS || real < -9e15 || real > 9e15) {
        return false;
      }
      integer = static_cast<int64_t>(real);
      if (static_cast<double>(integer) != real) return false;
    }
    append_bytes(bytes, integer);
  }
  return true;
}

bool append_float32(const element& array, std::string& bytes) {
  simdjson::dom::array items;
  if (array.get_array().get(items) != simdjson::SUCCESS) return false;
  bytes.reserve(bytes.size() + items.size() * sizeof(float));
  for (const element item : items) {
    double real = 0;
    if (!item.is_number() || item.get_double().get(real) != simdjson::SUCCESS) return false;
    append_bytes(bytes, static_cast<float>(real));
  }
  return true;
}

void list_problem(const JsonFields& fields, std::string_view key, const element& list, std::string_view rule) {
  has_null(list) ? fields.null_problem(key, rule, true) : fields.problem(key, rule);
}

void read_tensor(const JsonFields& fields, tinker_public::Tensor& tensor) {
  const std::string dtype = fields.required_string("dtype");
  const bool is_float = dtype == "float32";
  fields.only({"data", "dtype", "shape", "sparse_crow_indices", "sparse_col_indices"});
  if (!is_float && dtype != "int64") fields.problem("dtype", "must be float32 or int64");
  tensor.set_dtype(is_float ? tinker_public::DTYPE_FLOAT32 : tinker_public::DTYPE_INT64);

  if (const auto shape = fields.value("shape")) {
    std::vector<int32_t> sizes;
    if (!append_integers(*shape, 0, kInt32Max, sizes)) list_problem(fields, "shape", *shape, "must be a list of sizes");
    for (const int32_t size : sizes) tensor.add_shape(size);
  }

  const auto data = fields.value("data");
  if (!data) return fields.problem("data", "is required");
  const auto rows = fields.value("sparse_crow_indices");
  const auto columns = fields.value("sparse_col_indices");
  std::string& values = rows ? *tensor.mutable_sparse_csr()->mutable_values() : *tensor.mutable_dense();
  if (!(is_float ? append_float32(*data, values) : append_int64(*data, values))) {
    list_problem(fields, "data", *data,
                 is_float ? "must be a flat list of numbers" : "must be a flat list of integers");
  }
  if (!rows) {
    if (columns) fields.problem("sparse_crow_indices", "is required beside sparse_col_indices");
    return;
  }
  if (!append_int64(*rows, *tensor.mutable_sparse_csr()->mutable_crow_indices())) {
    list_problem(fields, "sparse_crow_indices", *rows, "must be a list of integers");
  }
  if (!columns) return fields.problem("sparse_col_indices", "is required beside sparse_crow_indices");
  if (!append_int64(*columns, *tensor.mutable_sparse_csr()->mutable_col_indices())) {
    list_problem(fields, "sparse_col_indices", *columns, "must be a list of integers");
  }
}

// Numbers become loss_fn_config, as older clients send them; texts have a place only in loss_fn_config_v2.
void read_loss_config(const JsonFields& input, tinker_public::ForwardBackwardRequest& request) {
  const auto config = input.value("loss_fn_config");
  if (!config) return;
  simdjson::dom::object members;
  if (config->get_object().get(members) != simdjson::SUCCESS) {
    return input.problem("loss_fn_config", "must be an object of numbers and strings");
  }
  constexpr size_t kMembersMax = 64;
  if (members.size() > kMembersMax) return input.problem("loss_fn_config", "must have at most 64 members");
  for (const auto [key, value] : members) {
    double number = 0;
    std::string_view text;
    if (value.is_number() && value.get_double().get(number) == simdjson::SUCCESS) {
      (*request.mutable_loss_fn_config())[std::string(key)] = number;
    } else if (value.get_string().get(text) == simdjson::SUCCESS) {
      (*request.mutable_loss_fn_config_v2())[std::string(key)].set_text(std::string(text));
    } else {
      const std::string rule = "its member " + shown_name(key) + " must be a number or a string";
      return value.is_null() ? input.null_problem("loss_fn_config", rule) : input.problem("loss_fn_config", rule);
    }
  }
}

Status read_datum(const JsonFields& fields, tinker_public::Datum& datum) {
  fields.only({"model_input", "loss_fn_inputs"});
  const auto input = fields.required_object("model_input");
  if (input) {
    std::vector<int32_t> tokens;
    TUFT_TRY(read_tokens(*input, tokens));
    datum.add_model_input()->mutable_encoded_text()->set_tokens(reinterpret_cast<const char*>(tokens.data()),
                                                                tokens.size() * sizeof(int32_t));
  }
  if (const auto tensors = fields.required_object("loss_fn_inputs")) {
    tensors->for_each_member([&](std::string_view name, const JsonFields& tensor) {
      read_tensor(tensor, (*datum.mutable_loss_fn_inputs())[std::string(name)]);
    });
  }
  return {};
}

}  // namespace

Status read_tokens(const JsonFields& model_input, std::vector<int32_t>& tokens) {
  Status status;
  model_input.for_each_object("chunks", true, [&](const JsonFields& chunk) {
    const std::string type = chunk.string("type", "encoded_text");
    if (type != "encoded_text") {
      status = invalid_argument("the input has a chunk that is not encoded_text; this server's models read text only",
                                "unsupported_chunk");
      return chunk.problem("type", "must be encoded_text");
    }
    const auto list = chunk.value("tokens");
    if (!list) return chunk.problem("tokens", "is required");
    if (!append_integers(*list, 0, kInt32Max, tokens)) {
      list_problem(chunk, "tokens", *list, "must be a list of integers from 0 to 2147483647");
    }
  });
  return status;
}

Status read_forward_backward(std::string& text, PassField field, tinker_public::ForwardBackwardRequest& request) {
  JsonBody body(text);
  const JsonFields fields = body.fields();
  request.set_model_id(fields.required_id("model_id"));
  request.set_seq_id(static_cast<int32_t>(fields.optional_integer("seq_id", 0, kInt32Max).value_or(0)));
  request.set_forward_only(fields.boolean("forward_only", false));
  const char* const input_key = field == PassField::kForward ? "forward_input" : "forward_backward_input";
  fields.only({"model_id", "seq_id", "type", "forward_only", input_key});
  Status status;
  const auto input = fields.required_object(input_key);
  if (input) {
    request.set_loss_fn(input->required_string("loss_fn"));
    read_loss_config(*input, request);
    input->only({"data", "loss_fn", "loss_fn_config"});
    input->for_each_object("data", true,
                           [&](const JsonFields& datum) { status = read_datum(datum, *request.add_data()); });
  }
  TUFT_TRY(status);
  return body.status();
}

}  // namespace tuft::api
