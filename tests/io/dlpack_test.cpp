#include "attn/dlpack.hpp"

#include <dlpack/dlpack.h>

#include <limits>

#include "io/helpers.hpp"

namespace attn::test {
namespace {

// A tensor of another framework, which counts the calls of its deleter.
struct Foreign {
  std::array<float, 6> values{1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> shape{2, 3}, strides{3, 1};
  int deleted = 0;
  DLManagedTensor managed{};

  Foreign() {
    managed.dl_tensor = {values.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), strides.data(), 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
  }
  DLTensor& tensor() { return managed.dl_tensor; }
};

void expect_refused(Foreign& foreign, Error::Kind kind, const std::vector<std::string>& parts) {
  expect_error(kind, parts, [&] { from_dlpack(&foreign.managed); });
  EXPECT_EQ(foreign.deleted, 0) << "the caller still owns it";
}

TEST(Dlpack, RoundTripsEveryTypeWithoutACopy) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name(dtype));
    const Tensor x = golden(dtype, {2, 3});
    const Tensor back = from_dlpack(to_dlpack(x));
    EXPECT_EQ(back.raw(), x.raw());
    expect_golden(back, dtype, {2, 3});
  }
}

TEST(Dlpack, RoundTripsViews) {
  const Tensor view = golden(DType::f32, {4, 3, 2}).transpose(0, 2).slice(1, 1, 3);
  const Tensor back = from_dlpack(to_dlpack(view));
  EXPECT_EQ(back.strides(), view.strides());
  expect_same(back, view);
  expect_same(from_dlpack(to_dlpack(golden(DType::f64, {}))), golden(DType::f64, {}));
  expect_same(from_dlpack(to_dlpack(golden(DType::i8, {0, 3}))), golden(DType::i8, {0, 3}));
}

TEST(Dlpack, ExportsWhatTheProtocolSays) {
  const Tensor x = golden(DType::boolean, {2, 3});
  DLManagedTensor* managed = to_dlpack(x);
  EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCPU);
  EXPECT_EQ(managed->dl_tensor.device.device_id, 0);
  EXPECT_EQ(managed->dl_tensor.dtype.code, 6);
  EXPECT_EQ(managed->dl_tensor.dtype.bits, 8);
  EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
  EXPECT_EQ(managed->dl_tensor.ndim, 2);
  EXPECT_EQ(managed->dl_tensor.shape[1], 3);
  EXPECT_EQ(managed->dl_tensor.strides[0], 3);
  EXPECT_EQ(managed->dl_tensor.byte_offset, 0u);
  managed->deleter(managed);
}

TEST(Dlpack, ExportKeepsTheElementsAlive) {
  auto owner = std::make_shared<std::array<float, 2>>(std::array{1.5f, 2.5f});
  DLManagedTensor* managed = to_dlpack(Tensor::from_blob(owner->data(), {2}, {1}, DType::f32, owner));
  EXPECT_EQ(owner.use_count(), 2);
  managed->deleter(managed);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Dlpack, DeletesOnceAfterTheLastView) {
  Foreign foreign;
  {
    Tensor x = from_dlpack(&foreign.managed);
    EXPECT_THAT(values_of(x), testing::ElementsAre(1, 2, 3, 4, 5, 6));
    const Tensor view = x.select(0, 1);
    x = Tensor();
    EXPECT_EQ(foreign.deleted, 0);
    EXPECT_THAT(values_of(view), testing::ElementsAre(4, 5, 6));
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(Dlpack, TakesNullStridesOffsetsAndNoDeleter) {
  Foreign foreign;
  foreign.tensor().strides = nullptr;
  EXPECT_THAT(values_of(from_dlpack(&foreign.managed)), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(foreign.deleted, 1);
  foreign.managed.deleter = nullptr;
  foreign.shape = {1, 2};
  foreign.tensor().shape = foreign.shape.data();
  foreign.tensor().byte_offset = 4;
  EXPECT_THAT(values_of(from_dlpack(&foreign.managed)), testing::ElementsAre(2, 3));
  foreign.strides = {0, -1};
  foreign.tensor().strides = foreign.strides.data();
  EXPECT_THAT(values_of(from_dlpack(&foreign.managed)), testing::ElementsAre(2, 1));
}

TEST(Dlpack, TakesTensorsWithoutElementsOrMemory) {
  Foreign foreign;
  foreign.shape = {0, 3};
  foreign.tensor().shape = foreign.shape.data();
  foreign.tensor().data = nullptr;
  const Tensor x = from_dlpack(&foreign.managed);
  EXPECT_TRUE(x.defined());
  EXPECT_EQ(x.numel(), 0);
}

TEST(Dlpack, RefusesOtherDevicesAndTypes) {
  Foreign foreign;
  for (const DLDeviceType device : {kDLCUDA, kDLCUDAHost, kDLMetal}) {
    foreign.tensor().device.device_type = device;
    expect_refused(foreign, Error::Kind::argument, {"memory of the CPU", std::to_string(device)});
  }
  foreign.tensor().device.device_type = kDLCPU;
  for (const DLDataType type : {DLDataType{kDLFloat, 32, 4}, DLDataType{kDLInt, 16, 1}, DLDataType{kDLUInt, 32, 1},
                                DLDataType{kDLComplex, 64, 1}, DLDataType{6, 1, 1}, DLDataType{kDLFloat, 8, 1}}) {
    foreign.tensor().dtype = type;
    expect_refused(foreign, Error::Kind::dtype, {"[from_dlpack]", "lanes"});
  }
}

TEST(Dlpack, RefusesOtherShapes) {
  Foreign foreign;
  foreign.tensor().ndim = 9;
  expect_refused(foreign, Error::Kind::shape, {"0 to 8 dimensions", "9"});
  foreign.tensor().ndim = -1;
  expect_refused(foreign, Error::Kind::shape, {"0 to 8 dimensions"});
  foreign.tensor().ndim = 2;
  constexpr std::int64_t max = std::numeric_limits<std::int64_t>::max();
  for (const auto& sizes : {std::vector<std::int64_t>{-1, 2}, {max, 2}, {max, 1}, {0, max, max}}) {
    foreign.shape = sizes;
    foreign.tensor().shape = foreign.shape.data();
    foreign.tensor().strides = nullptr;
    foreign.tensor().ndim = static_cast<int>(sizes.size());
    expect_refused(foreign, Error::Kind::shape, {"found"});
  }
  foreign.tensor().shape = nullptr;
  expect_refused(foreign, Error::Kind::shape, {"null"});
}

TEST(Dlpack, RefusesStridesThatOverflow) {
  Foreign foreign;
  for (const std::int64_t stride :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    foreign.strides = {stride, 1};
    foreign.tensor().strides = foreign.strides.data();
    expect_refused(foreign, Error::Kind::shape, {"2^63"});
  }
}

TEST(Dlpack, RefusesBadAddresses) {
  Foreign foreign;
  foreign.tensor().byte_offset = 2;
  expect_refused(foreign, Error::Kind::argument, {"aligned"});
  foreign.tensor().data = nullptr;
  expect_refused(foreign, Error::Kind::argument, {"null"});
  expect_error(Error::Kind::argument, {"null"}, [] { from_dlpack(nullptr); });
  expect_error(Error::Kind::argument, {"[to_dlpack]", "undefined"}, [] { to_dlpack(Tensor()); });
}

}  // namespace
}  // namespace attn::test
